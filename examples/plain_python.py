"""Your own loop, and no framework: one environment, then groups of episodes with prompts, context keys and HGPO's
advantages. `python examples/plain_python.py`; it needs NumPy and Gymnasium alone."""

import gymnasium
import numpy as np

from hgpo_gym import TextVectorEnv
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.memory import ContextWrapper


def agent(prompt: str, actions: tuple[str, ...], rng: np.random.Generator) -> str:
    """Yours: reads a prompt, answers with an action. This one goes at random."""
    return str(rng.choice(actions))


rng = np.random.default_rng(0)

# One environment: Gymnasium's own loop.
env = gymnasium.make("hgpo_gym/SignpostMaze-v0", sections=1)
observation, info = env.reset(seed=0)
over = False
while not over:
    action = agent(observation, info["admissible_actions"], rng)
    observation, reward, terminated, truncated, info = env.step(action)
    over = terminated or truncated
print(observation, "Solved." if info["won"] else "Not solved.")

# Groups of episodes: four of each of two tasks. The memory writes the prompt and the context keys of every step.
vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks=2, group_size=4, sections=1)
memory = ContextWrapper(vector, prompt="bare", window=2, history_length=2)
prompts, infos = memory.reset(seed=0)
rows: list[tuple] = []
for step in range(100):
    active = np.flatnonzero(vector.active)
    if not len(active):
        break
    actions = [""] * vector.num_envs
    for row in active:
        actions[row] = agent(prompts[row], infos["admissible_actions"][row], rng)
    keys = infos["context_keys"]
    prompts, rewards, _, _, infos = memory.step(actions)
    rows += [(row // 4, row, step, rewards[row], keys[row], 0.0) for row in active]

batch = StepBatch(*(np.array(column) for column in zip(*rows, strict=True)))
advantages = estimate("hgpo", batch, gamma=0.95)
print(f"{len(batch)} steps of 8 episodes; advantages from {advantages.min():.2f} to {advantages.max():.2f}.")
