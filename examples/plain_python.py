"""A loop of your own: one environment, then groups of episodes with prompts, context keys and HGPO's advantages.

`python examples/plain_python.py` needs only NumPy and Gymnasium.
"""

import numpy as np

import hgpo_gym as hg


def agent(prompt: str, actions: tuple[str, ...], rng: np.random.Generator) -> str:
    """Return an action for a prompt. Yours asks a model; this one acts at random."""
    return str(rng.choice(actions))


rng = np.random.default_rng(0)

# One environment, in Gymnasium's loop.
env = hg.make("hgpo_gym/SignpostMaze-v0", sections=1)
observation, info = env.reset(seed=0)
ended = False
while not ended:
    action = agent(observation, info["admissible_actions"], rng)
    observation, reward, terminated, truncated, info = env.step(action)
    ended = terminated or truncated
print(observation, "Solved." if info["won"] else "Not solved.")

# Groups of episodes: four of each of two tasks. The memory writes the prompt and the context keys of every step.
vector = hg.make_vec("hgpo_gym/SignpostMaze-v0", num_tasks=2, group_size=4, sections=1)
envs = hg.ContextWrapper(vector, prompt="bare", window=2, history_length=2)
prompts, infos = envs.reset(seed=0)
rows: list[tuple] = []
for step in range(100):
    active = np.flatnonzero(vector.active)
    if not len(active):
        break
    actions = [""] * vector.num_envs
    for row in active:
        actions[row] = agent(prompts[row], infos["admissible_actions"][row], rng)
    keys = infos["context_keys"]
    prompts, rewards, _, _, infos = envs.step(actions)
    rows += [(row // 4, row, step, rewards[row], keys[row], 0.0) for row in active]

batch = hg.StepBatch(*(np.array(column) for column in zip(*rows, strict=True)))
advantages = hg.estimate("hgpo", batch, gamma=0.95)
print(f"{len(batch)} steps of 8 episodes; advantages from {advantages.min():.2f} to {advantages.max():.2f}.")
