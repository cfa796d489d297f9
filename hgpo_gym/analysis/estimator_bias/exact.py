"""Exact values by dynamic programming over states and steps: what the advantage estimators estimate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgpo_gym.advantages.batch import labels
from hgpo_gym.analysis.estimator_bias.decision_process import NOWHERE, DecisionProcess


@dataclass(frozen=True)
class Values:
    """Of a task under a policy. The steps count, since no reward comes after the step limit.

    Attributes:
        value: float64[T, S], V: the expected return of step t in that state, discounted, up to the limit T.
        action_value: float64[T, S, A], Q.
        visits: float64[T, S], the probability of being in that state at step t.
    """

    value: np.ndarray
    action_value: np.ndarray
    visits: np.ndarray

    @property
    def advantage(self) -> np.ndarray:
        """float64[T, S, A]: Q - V."""
        return self.action_value - self.value[:, :, None]


def solve(process: DecisionProcess, policy: np.ndarray, gamma: float, horizon: int) -> Values:
    """The exact values under `policy`, float64[M, A], the probability of each action in each situation."""
    states, actions = process.next_state.shape[:2]
    chosen = policy[process.situation][:, :actions]
    goes_on = process.next_state != NOWHERE
    value, action_value = np.zeros((horizon + 1, states)), np.zeros((horizon, states, actions))
    for step in range(horizon - 1, -1, -1):
        worth = process.reward + gamma * np.where(goes_on, value[step + 1][process.next_state], 0.0)
        action_value[step] = (process.probability * worth).sum(axis=2)
        value[step] = (chosen * action_value[step]).sum(axis=1)
    visits = np.zeros((horizon, states))
    visits[0, 0] = 1.0
    for step in range(horizon - 1):
        flow = (visits[step][:, None] * chosen)[:, :, None] * process.probability
        visits[step + 1] = np.bincount(process.next_state[goes_on], weights=flow[goes_on], minlength=states)
    return Values(value[:horizon], action_value, visits)


def success_rate(process: DecisionProcess, policy: np.ndarray, values: Values) -> float:
    """The probability that an episode earns a reward before the step limit."""
    earning = (process.probability * (process.reward > 0)).sum(axis=2)
    earning = (policy[process.situation][:, : earning.shape[1]] * earning).sum(axis=1)
    return float((values.visits @ earning).sum())


def baseline(process: DecisionProcess, values: Values, level: int) -> np.ndarray:
    """float64[S]: what the mean return of the steps with equal key at `level` tends to in ever larger groups, the mean
    of V over all visits with that key. Where the episode is too short for that level, of the deepest there is."""
    mean = np.empty(len(process.context_keys))
    for shallower in range(level + 1):
        known = process.context_keys[:, shallower] != 0
        keys = labels(process.context_keys[known, shallower])
        visits = np.bincount(keys, weights=values.visits.sum(axis=0)[known])
        total = np.bincount(keys, weights=(values.visits * values.value).sum(axis=0)[known])
        mean[known] = (total / np.where(visits > 0, visits, 1.0))[keys]
    return mean


def context_bias(
    processes: Sequence[DecisionProcess], policy: np.ndarray, values: Sequence[Values]
) -> tuple[float, ...]:
    """For each level: the mean over visits of (V - baseline)^2, over that of the squared advantage.

    It is the squared bias that contexts which do not tell values apart leave in G_t - baseline in any group.
    """
    signal = 0.0
    bias = np.zeros(processes[0].history_length + 1)
    for process, value in zip(processes, values, strict=True):
        chosen = policy[process.situation][:, : process.next_state.shape[1]]
        signal += (value.visits[:, :, None] * chosen * value.advantage**2).sum()
        for level in range(len(bias)):
            bias[level] += (value.visits * (value.value - baseline(process, value, level)) ** 2).sum()
    return tuple((bias / signal).tolist())
