"""Values along episodes: next values, steps left, and generalized advantages."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import check_shares, sum_of_later


def next_in_episode(batch: StepBatch, values: np.ndarray, end: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the value at the next step of the episode, float64[N]; at the last step, `end`."""
    order = batch.in_order
    following = np.empty(len(batch))
    following[order[:-1]] = values[order[1:]]
    return np.where(is_last(batch), end, following)


def is_last(batch: StepBatch) -> np.ndarray:
    """Return bool[N]: true on the last steps of episodes."""
    order = batch.in_order
    last = np.ones(len(batch), dtype=np.bool_)
    last[order[:-1]] = batch.step[order[1:]] == 0
    return last


def steps_left(batch: StepBatch) -> np.ndarray:
    """Return T - t, int64[N]: the number of steps to the end of the episode, this one included."""
    return np.bincount(batch.trajectory_labels)[batch.trajectory_labels] - batch.step


def generalized_advantages(batch: StepBatch, values: np.ndarray, gamma: float, trace_decay: float) -> np.ndarray:
    """Return float64[N]: A_t = d_t + gamma * lambda * A_{t+1} with d_t = r_t + gamma * v_{t+1} - v_t.

    Generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438), with v = 0 after the end. Penalties are
    not included.

    Raises:
        ValueError: gamma or trace_decay (lambda) is not in [0, 1].
    """
    check_shares(gamma=gamma, trace_decay=trace_decay)
    differences = batch.reward + gamma * next_in_episode(batch, values) - values
    decay = gamma * trace_decay
    return differences + decay * sum_of_later(batch, differences, decay)
