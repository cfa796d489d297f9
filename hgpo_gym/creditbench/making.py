"""Make probes from seeds, the same bits on every machine."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hgpo_gym.creditbench.data import COLUMNS, GAMMA, GROUP_SIZES, HISTORY_LENGTH, Probe
from hgpo_gym.creditbench.decision_process import DecisionProcess, Situations, unfold
from hgpo_gym.creditbench.exact import solve
from hgpo_gym.creditbench.policies import language_model_policy, stages_of_training
from hgpo_gym.creditbench.simulate import roll_out
from hgpo_gym.creditbench.text_probes import TEXT_ENVIRONMENTS, text_probes
from hgpo_gym.envs.signpost_maze import SignpostMaze, SignpostMazeEnv
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.randomness import RandomStream

MAZES: dict[str, dict[str, Any]] = {
    "maze_halls": {},
    "maze_chance": {"slip": 0.2},
    "maze_plates": {"plates": True},
}
"""Options of SignpostMaze by environment of the benchmark."""
ENVIRONMENTS = (*MAZES, *TEXT_ENVIRONMENTS)
STAGES = {"early": 0, "middle": 10, "late": 20}
"""Improvements of the uniform policy by stage of training."""
TASKS, EPISODES, STEP_LIMIT, WINDOW = 8, 128, 30, 2
"""For each maze and stage: tasks, episodes of each, and the step limit. The policy reads two past steps."""


def make_probes(
    seed: int = 0,
    environments: Sequence[str] = ENVIRONMENTS,
    *,
    tasks: int | None = None,
    episodes: int | None = None,
) -> list[Probe]:
    """Return the probes of a seed, the same bits on every machine.

    Args:
        seed: 0 for the public ones.
        environments: some of `ENVIRONMENTS`.
        tasks: of each environment and stage; by default 8 of a maze, 16 of a text environment.
        episodes: of each task, a multiple of 16; by default 128 and 32.
    """
    if (episodes or 0) % max(GROUP_SIZES):
        raise ValueError(f"episodes={episodes}: choose a multiple of {max(GROUP_SIZES)}, the largest group.")
    found = []
    for name in environments:
        make = _maze_probes if name in MAZES else text_probes
        sizes = {key: value for key, value in (("tasks", tasks), ("episodes", episodes)) if value is not None}
        found += make(name, (seed, ENVIRONMENTS.index(name)), **sizes)
    return found


def _maze_probes(name: str, seed: tuple[int, int], tasks: int = TASKS, episodes: int = EPISODES) -> list[Probe]:
    """Return the probes of a maze at all stages."""
    env = SignpostMazeEnv(**MAZES[name])
    order = np.random.default_rng((RandomStream.CREDIT_BENCHMARK, *seed)).permutation(len(env.task_ids))
    situations = Situations()
    rules = [_Recorded(env.dynamics(env.task_ids[task])) for task in order[:tasks]]
    unfolded = partial(unfold, situations=situations, window=WINDOW, key="observation")
    short = [unfolded(task, history_length=0) for task in rules]
    processes = [unfolded(task, history_length=HISTORY_LENGTH) for task in rules]
    texts = {key: text for task in rules for key, text in task.texts.items()}
    policies = stages_of_training(situations, short, GAMMA, STEP_LIMIT, list(STAGES.values()))
    stages = dict(zip(STAGES, policies, strict=True))
    if name == "maze_halls":
        stages["language_model"] = language_model_policy(situations)
    return [
        _probe(name, stage, processes, _rounded(policy), texts, (*seed, index), episodes)
        for index, (stage, policy) in enumerate(stages.items())
    ]


def _probe(
    environment: str,
    stage: str,
    processes: Sequence[DecisionProcess],
    policy: np.ndarray,
    texts: dict[int, str],
    seed: tuple[int, int, int],
    episodes: int,
) -> Probe:
    index_of = {key: number for number, key in enumerate(texts)}
    number_of = np.vectorize(index_of.__getitem__, otypes=[np.int32])
    parts: list[dict[str, np.ndarray]] = []
    for task, process in enumerate(processes):
        generator = np.random.default_rng((RandomStream.CREDIT_BENCHMARK, *seed, task))
        steps, values = (
            roll_out(process, policy, STEP_LIMIT, episodes, generator),
            solve(process, policy, GAMMA, STEP_LIMIT),
        )
        last, outcome, visit = (
            steps.last,
            (steps.state, steps.action, steps.outcome),
            (steps.step, steps.state, steps.action),
        )
        won = np.bincount(steps.episode, weights=steps.reward > 0)[steps.episode] > 0
        columns = {
            "task": np.full(len(steps.step), task),
            "episode": task * episodes + steps.episode,
            "step": steps.step,
            "observation": number_of(process.context_keys[steps.state, 0]),
            "action": number_of(process.action_key[steps.state, steps.action]),
            "reward": steps.reward.astype(np.float32),
            "success": won.astype(np.int8),
            "truncated": (~won).astype(np.int8),
            "final_observation": number_of(process.next_keys[outcome][last][:, 0]),
            "history": np.ravel_multi_index(visit, values.advantage.shape),
            # Rounded: the last bits of exponentials and sums differ between machines.
            "advantage": np.round(values.advantage[visit], 6) + 0.0,
            "standard_error": np.zeros(len(steps.step), dtype=np.float32),
        }
        columns["history"] += int(parts[-1]["history"].max()) + 1 if parts else 0
        parts.append(columns)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    kept = {name: values.astype(np.int32) if values.dtype == np.int64 else values for name, values in joined.items()}
    return Probe(environment, stage, kept, list(texts.values()))


def _rounded(policy: np.ndarray) -> np.ndarray:
    """Return the policy with probabilities that are quotients of whole numbers, the same on every machine."""
    weights = np.round(policy * 2.0**20)
    return weights / weights.sum(axis=1, keepdims=True)


class _Recorded:
    """The rules of a maze, which keep every text that they return, by its hash int64."""

    def __init__(self, rules: SignpostMaze):
        self.rules, self.start = rules, rules.start
        self.texts: dict[int, str] = {}
        self.outcomes, self.reward = rules.outcomes, rules.reward

    def observation(self, place: Any) -> str:
        return self._kept(self.rules.observation(place))

    def admissible_actions(self, place: Any) -> tuple[str, ...]:
        return tuple(map(self._kept, self.rules.admissible_actions(place)))

    def _kept(self, text: str) -> str:
        self.texts[int(np.array(hash_text(text), dtype=np.uint64).view(np.int64))] = text
        return text
