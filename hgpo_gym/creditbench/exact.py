"""Exact values by dynamic programming over states and steps: the target of the advantage estimators."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgpo_gym.advantages.batch import labels
from hgpo_gym.creditbench.decision_process import NOWHERE, DecisionProcess


@dataclass(frozen=True)
class Values:
    """The exact values of a task under a policy. They depend on the step, since rewards end at the step limit.

    Attributes:
        value: float64[T, S], V: the expected return of step t in that state, discounted, up to the limit T.
        action_value: float64[T, S, A], Q.
        visits: float64[T, S], the probability that the agent is in that state at step t.
    """

    value: np.ndarray
    action_value: np.ndarray
    visits: np.ndarray

    @property
    def advantage(self) -> np.ndarray:
        """float64[T, S, A]: Q - V."""
        return self.action_value - self.value[:, :, None]


def solve(process: DecisionProcess, policy: np.ndarray, gamma: float, horizon: int) -> Values:
    """Return the exact values under `policy`, float64[M, A], the probability of each action in each situation."""
    states, actions = process.next_state.shape[:2]
    action_probability = policy[process.situation][:, :actions]
    continues = process.next_state != NOWHERE
    value, action_value = np.zeros((horizon + 1, states)), np.zeros((horizon, states, actions))
    for step in range(horizon - 1, -1, -1):
        # Where the episode ends, next_state is -1 and would read the last state; np.where masks it.
        outcome_value = process.reward + gamma * np.where(continues, value[step + 1][process.next_state], 0.0)
        action_value[step] = (process.probability * outcome_value).sum(axis=2)
        value[step] = (action_probability * action_value[step]).sum(axis=1)
    visits = np.zeros((horizon, states))
    visits[0, 0] = 1.0
    for step in range(horizon - 1):
        flow = (visits[step][:, None] * action_probability)[:, :, None] * process.probability
        visits[step + 1] = np.bincount(process.next_state[continues], weights=flow[continues], minlength=states)
    return Values(value[:horizon], action_value, visits)


def success_rate(process: DecisionProcess, policy: np.ndarray, values: Values) -> float:
    """Return the probability that an episode earns a reward before the step limit."""
    p_success = (process.probability * (process.reward > 0)).sum(axis=2)
    p_success = (policy[process.situation][:, : p_success.shape[1]] * p_success).sum(axis=1)
    return float((values.visits @ p_success).sum())


def baseline(process: DecisionProcess, values: Values, level: int) -> np.ndarray:
    """Return the limit of the mean return of steps with an equal key at `level`, for ever larger groups, float64[S].

    It is the mean of V over all visits with that key. If the episode is too short for the level, the deepest existing
    level counts.
    """
    mean = np.empty(len(process.context_keys))
    for shallower in range(level + 1):
        # Deeper levels overwrite shallower ones; key 0 means that the history is too short.
        has_key = process.context_keys[:, shallower] != 0
        keys = labels(process.context_keys[has_key, shallower])
        visits = np.bincount(keys, weights=values.visits.sum(axis=0)[has_key])
        total = np.bincount(keys, weights=(values.visits * values.value).sum(axis=0)[has_key])
        mean[has_key] = (total / np.where(visits > 0, visits, 1.0))[keys]
    return mean


def context_bias(
    processes: Sequence[DecisionProcess], policy: np.ndarray, values: Sequence[Values]
) -> tuple[float, ...]:
    """Return for each level the mean over visits of (V - baseline)^2, divided by that of the squared advantage.

    Contexts that do not tell values apart leave this squared bias in G_t - baseline, however large the group is.
    """
    signal = 0.0
    bias = np.zeros(processes[0].history_length + 1)
    for process, value in zip(processes, values, strict=True):
        action_probability = policy[process.situation][:, : process.next_state.shape[1]]
        signal += (value.visits[:, :, None] * action_probability * value.advantage**2).sum()
        for level in range(len(bias)):
            bias[level] += (value.visits * (value.value - baseline(process, value, level)) ** 2).sum()
    return tuple((bias / signal).tolist())
