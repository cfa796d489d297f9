"""Episodes of a decision process, many at a time."""

from dataclasses import dataclass

import numpy as np

from hgpo_gym.analysis.estimator_bias.decision_process import NOWHERE, DecisionProcess


@dataclass(frozen=True)
class Steps:
    """A row a step, an episode's steps in order, episode after episode. Arrays of length N.

    Attributes:
        episode: 0 to the number of episodes - 1.
        step, state, action: where and when it was, and the number of the action in the situation.
        reward: of that action.
    """

    episode: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray


def roll_out(
    process: DecisionProcess, policy: np.ndarray, horizon: int, episodes: int, generator: np.random.Generator
) -> Steps:
    """Independent episodes of at most `horizon` steps under `policy`, float64[M, A]."""
    actions = process.next_state.shape[1]
    cumulative = np.cumsum(policy[process.situation][:, :actions], axis=1)
    cumulative /= cumulative[:, -1:]  # exactly 1 from the last admissible action on
    running, state = np.arange(episodes), np.zeros(episodes, dtype=np.int64)
    parts = []
    for step in range(horizon):
        action = (generator.random(len(running))[:, None] >= cumulative[state]).sum(axis=1)
        parts.append((running, np.full(len(running), step), state, action, process.reward[state, action]))
        state = process.next_state[state, action]
        running, state = running[state != NOWHERE], state[state != NOWHERE]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return Steps(*(column[order] for column in columns))
