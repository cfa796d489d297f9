"""Episodes of a decision process, many at a time."""

from dataclasses import dataclass

import numpy as np

from hgpo_gym.creditbench.decision_process import NOWHERE, DecisionProcess


@dataclass(frozen=True)
class Steps:
    """Steps of episodes, a row each, in the order of episode and step. Arrays of length N.

    Attributes:
        episode: 0 to the number of episodes - 1.
        step, state, action: the step in the episode, its state, and the number of the action in the situation.
        outcome: the number of the outcome.
        reward: the reward of that outcome.
    """

    episode: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    outcome: np.ndarray
    reward: np.ndarray

    @property
    def last(self) -> np.ndarray:
        """The row of the last step of each step's episode, int64[N]."""
        last_rows = np.flatnonzero(np.append(np.diff(self.episode) != 0, True))
        return last_rows[self.episode]


class _Dynamics:
    """Random transitions of a process under a policy, float64[M, A]."""

    def __init__(self, process: DecisionProcess, policy: np.ndarray, generator: np.random.Generator):
        self.process, self.generator = process, generator
        self.by_action = _cumulative(policy[process.situation][:, : process.next_state.shape[1]])
        self.by_outcome = _cumulative(process.probability)

    def advance(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the action, outcome, reward and next state of each state, int64[N]."""
        action = self._draw(self.by_action[state])
        # With one outcome nothing is drawn, so that deterministic environments use random numbers for actions only.
        chance = self.by_outcome.shape[2] > 1
        outcome = self._draw(self.by_outcome[state, action]) if chance else np.zeros_like(action)
        index = state, action, outcome
        return action, outcome, self.process.reward[index], self.process.next_state[index]

    def _draw(self, cumulative: np.ndarray) -> np.ndarray:
        return (self.generator.random(len(cumulative))[:, None] >= cumulative).sum(axis=1)


def _cumulative(probability: np.ndarray) -> np.ndarray:
    """Return the cumulative probability over the last axis; exactly 1 from the last nonzero entry on."""
    cumulative = np.cumsum(probability, axis=-1)
    # Without the division, rounding below 1 could select an action that does not exist.
    return cumulative / np.where(cumulative[..., -1:] > 0, cumulative[..., -1:], 1.0)


def roll_out(
    process: DecisionProcess, policy: np.ndarray, horizon: int, episodes: int, generator: np.random.Generator
) -> Steps:
    """Return independent episodes of at most `horizon` steps under `policy`, float64[M, A]."""
    dynamics = _Dynamics(process, policy, generator)
    running, state = np.arange(episodes), np.zeros(episodes, dtype=np.int64)
    parts = []
    for step in range(horizon):
        action, outcome, reward, next_state = dynamics.advance(state)
        parts.append((running, np.full(len(running), step), state, action, outcome, reward))
        continues = next_state != NOWHERE
        running, state = running[continues], next_state[continues]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    # Steps were collected step by step; sort by episode, then by step.
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
    """Return float64[N, restarts]: discounted returns of continuations from the state before each step."""
    dynamics = _Dynamics(process, policy, generator)
    running, state = np.arange(len(steps.state) * restarts), np.repeat(steps.state, restarts)
    remaining = np.repeat(horizon - steps.step, restarts)
    returns, discount = np.zeros(len(running)), 1.0
    while len(running):
        _, _, reward, next_state = dynamics.advance(state)
        returns[running] += discount * reward
        discount *= gamma
        remaining = remaining - 1
        continues = (next_state != NOWHERE) & (remaining > 0)
        running, state, remaining = running[continues], next_state[continues], remaining[continues]
    return returns.reshape(len(steps.state), restarts)
