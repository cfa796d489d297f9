"""Probes of text environments: the expert with a share of random actions, and true advantages by continuations."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.creditbench.data import COLUMNS, GAMMA, Probe
from hgpo_gym.creditbench.noisy_expert import Continuation, NoisyExpert, actions_of_expert
from hgpo_gym.envs.base import Snapshot, TextEnv
from hgpo_gym.envs.registration import make
from hgpo_gym.randomness import RandomStream

TASKS, EPISODES, PROBED, CONTINUATIONS = 16, 32, 24, 32
"""For each environment and stage: tasks; of each task episodes, and steps whose true advantage is known; and
continuations for each value."""


class TextEnvironment(NamedTuple):
    """An environment without chance.

    Attributes:
        id, options: what `make` takes.
        step_limit: of an episode.
        random_actions: the share of actions that are not the expert's, by stage of training.
    """

    id: str
    options: Mapping[str, Any]
    step_limit: int
    random_actions: Mapping[str, float]


def _stages(early: float, middle: float, late: float) -> Mapping[str, float]:
    return {"early": early, "middle": middle, "late": late}


TEXT_ENVIRONMENTS = {
    "alfworld": TextEnvironment("hgpo_gym/ALFWorld-v0", {"split": "generated"}, 30, _stages(0.7, 0.6, 0.45)),
    "webshop": TextEnvironment(
        "hgpo_gym/WebShop-v0", {"split": "generated", "queries": "suggested"}, 15, _stages(0.5, 0.3, 0.1)
    ),
    "secret_word": TextEnvironment("hgpo_gym/SecretWord-v0", {"guesses": 4}, 8, _stages(0.9, 0.6, 0.3)),
    "sokoban": TextEnvironment("hgpo_gym/Sokoban-v0", {}, 30, _stages(0.8, 0.65, 0.5)),
    "textcraft": TextEnvironment(
        "hgpo_gym/TextCraft-v0", {"recipes": "generated", "depth": [3, 4]}, 20, _stages(0.6, 0.4, 0.2)
    ),
    "search": TextEnvironment("hgpo_gym/Search-v0", {"queries": "suggested"}, 4, _stages(0.6, 0.4, 0.2)),
}
"""By the environment's name in the benchmark."""


def text_probes(name: str, seed: tuple[int, int], tasks: int = TASKS, episodes: int = EPISODES) -> list[Probe]:
    """Return the probes of an environment at all stages, the same bits on every machine."""
    entry = TEXT_ENVIRONMENTS[name]
    env: TextEnv = make(entry.id, expert=True, **entry.options).unwrapped  # type: ignore[assignment]
    generator = np.random.default_rng((RandomStream.CREDIT_BENCHMARK, *seed))
    order = generator.permutation(len(env.task_ids))[:tasks]
    otherwise = actions_of_expert(env, entry.step_limit, seed[0], generator)
    found = []
    for number, (stage, share) in enumerate(entry.random_actions.items()):
        texts: dict[str, int] = {}
        parts = []
        for task, place in enumerate(order.tolist()):
            expert = partial(
                NoisyExpert,
                env,
                share,
                np.random.default_rng((RandomStream.CREDIT_BENCHMARK, *seed, number, task)),
                horizon=entry.step_limit,
                otherwise=otherwise,
            )
            parts.append(_task_columns(expert, env.task_ids[place], seed[0], task, episodes, texts))
        columns = {column: np.concatenate([part[column] for part in parts]) for column in COLUMNS}
        found.append(Probe(name, stage, columns, list(texts)))
    env.close()
    return found


def _task_columns(
    expert: "partial[NoisyExpert]", task_id: str, seed: int, task: int, episodes: int, texts: dict[str, int]
) -> dict[str, np.ndarray]:
    """Play a task's episodes, and return the columns of its steps. New texts are added to `texts`."""
    expert_policy = expert(seen=lambda observation, _: texts.setdefault(observation, len(texts)))
    recorded = [expert_policy.play_task(task_id, seed, keep=range(expert_policy.horizon)) for _ in range(episodes)]
    steps = [(number, step) for number, (episode, _) in enumerate(recorded) for step in range(len(episode.actions))]
    rows = np.sort(expert_policy.generator.permutation(len(steps))[:PROBED])
    advantage, error = np.full(len(steps), np.nan), np.full(len(steps), np.nan, dtype=np.float32)
    values = _Values(expert())
    for row in rows.tolist():
        number, step = steps[row]
        episode, snapshots = recorded[number]
        advantage[row], error[row] = values.advantage(episode, snapshots, step)
    histories: dict[tuple[int, ...], int] = {}
    actions = [[texts.setdefault(action, len(texts)) for action in episode.actions] for episode, _ in recorded]
    numbers = [histories.setdefault((task, *actions[number][: step + 1]), len(histories)) for number, step in steps]
    of_step = [(recorded[number][0], step) for number, step in steps]
    whole = {
        "task": [task] * len(steps),
        "episode": [task * episodes + number for number, _ in steps],
        "step": [step for _, step in steps],
        "observation": [episode.observations[step] for episode, step in of_step],
        "action": [action for episode_actions in actions for action in episode_actions],
        "final_observation": [episode.observations[-1] for episode, _ in of_step],
        # Histories of different tasks have different numbers.
        "history": [(task << 20) + number for number in numbers],
    }
    return {
        **{name: np.array(column, dtype=np.int32) for name, column in whole.items()},
        "reward": np.array([episode.rewards[step] for episode, step in of_step], dtype=np.float32),
        "success": np.array([episode.won for episode, _ in of_step], dtype=np.int8),
        "truncated": np.array([episode.truncated for episode, _ in of_step], dtype=np.int8),
        "advantage": advantage,
        "standard_error": error,
    }


class _Values:
    """Sampled values of a task's histories. Nothing is left to chance, so that the actions are the history."""

    def __init__(self, expert: NoisyExpert):
        self.expert = expert
        self.known: dict[tuple[str, ...], tuple[float, float]] = {}

    def advantage(self, episode: Continuation, snapshots: Mapping[int, Snapshot], step: int) -> tuple[float, float]:
        """Return r + gamma V' - V of a step, and its standard error."""
        value, variance = self._value(episode, snapshots, step)
        next_value, next_variance = self._value(episode, snapshots, step + 1)
        estimate = episode.rewards[step] + GAMMA * next_value - value
        return round(estimate, 6) + 0.0, math.sqrt(variance + GAMMA * GAMMA * next_variance)

    def _value(self, episode: Continuation, snapshots: Mapping[int, Snapshot], step: int) -> tuple[float, float]:
        """Return the value of the history before a step, and the variance of this mean; 0 after the last step."""
        if step == len(episode.actions):
            return 0.0, 0.0
        history = tuple(episode.actions[:step])
        if history not in self.known:
            returns = [self.expert.play_on(snapshots[step], step)[0].discounted(GAMMA) for _ in range(CONTINUATIONS)]
            # math.fsum rounds once: the same bits in every order and version of Python.
            mean = math.fsum(returns) / CONTINUATIONS
            squares = math.fsum((each - mean) * (each - mean) for each in returns)
            self.known[history] = mean, squares / (CONTINUATIONS * (CONTINUATIONS - 1))
        return self.known[history]
