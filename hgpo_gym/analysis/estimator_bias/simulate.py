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
        outcome: the number of what came of it.
        reward: of that outcome.
    """

    episode: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    outcome: np.ndarray
    reward: np.ndarray

    @property
    def last(self) -> np.ndarray:
        """int64[N], the row of the last step of each step's episode."""
        ends = np.flatnonzero(np.append(np.diff(self.episode) != 0, True))
        return ends[self.episode]


class _Dynamics:
    """What states lead to under a policy, float64[M, A], by chance."""

    def __init__(self, process: DecisionProcess, policy: np.ndarray, generator: np.random.Generator):
        self.process, self.generator = process, generator
        self.by_action = _cumulative(policy[process.situation][:, : process.next_state.shape[1]])
        self.by_outcome = _cumulative(process.probability)

    def advance(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """int64[N] -> of each the action, the outcome, the reward and the next state."""
        action = self._draw(self.by_action[state])
        # One outcome needs no chance: episodes of a deterministic environment hang on the actions alone.
        chance = self.by_outcome.shape[2] > 1
        outcome = self._draw(self.by_outcome[state, action]) if chance else np.zeros_like(action)
        where = state, action, outcome
        return action, outcome, self.process.reward[where], self.process.next_state[where]

    def _draw(self, cumulative: np.ndarray) -> np.ndarray:
        return (self.generator.random(len(cumulative))[:, None] >= cumulative).sum(axis=1)


def _cumulative(probability: np.ndarray) -> np.ndarray:
    """Over the last axis, and exactly 1 from the last entry on that is not 0."""
    total = np.cumsum(probability, axis=-1)
    return total / np.where(total[..., -1:] > 0, total[..., -1:], 1.0)


def roll_out(
    process: DecisionProcess, policy: np.ndarray, horizon: int, episodes: int, generator: np.random.Generator
) -> Steps:
    """Independent episodes of at most `horizon` steps under `policy`, float64[M, A]."""
    dynamics = _Dynamics(process, policy, generator)
    running, state = np.arange(episodes), np.zeros(episodes, dtype=np.int64)
    parts = []
    for step in range(horizon):
        action, outcome, reward, following = dynamics.advance(state)
        parts.append((running, np.full(len(running), step), state, action, outcome, reward))
        goes_on = following != NOWHERE
        running, state = running[goes_on], following[goes_on]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return Steps(*(column[order] for column in columns))


def restart(
    process: DecisionProcess,
    policy: np.ndarray,
    steps: Steps,
    horizon: int,
    gamma: float,
    restarts: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """float64[N, restarts]: discounted returns of continuations from the state before each step, up to the limit."""
    dynamics = _Dynamics(process, policy, generator)
    running, state = np.arange(len(steps.state) * restarts), np.repeat(steps.state, restarts)
    left = np.repeat(horizon - steps.step, restarts)
    returns, discount = np.zeros(len(running)), 1.0
    while len(running):
        _, _, reward, following = dynamics.advance(state)
        returns[running] += discount * reward
        discount *= gamma
        left = left - 1
        goes_on = (following != NOWHERE) & (left > 0)
        running, state, left = running[goes_on], following[goes_on], left[goes_on]
    return returns.reshape(len(steps.state), restarts)
