"""What every estimator is made of: discounted returns, and values relative to a set of steps."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.suggest import unknown_name

NORMS = ("mean_std_norm", "mean_norm")
EPISODE_STATISTICS = ("trajectories", "steps")
EPSILON = 1e-6


def discounted_returns(batch: StepBatch, gamma: float) -> np.ndarray:
    """float64[N]: G_t = r_t + gamma * G_{t+1} inside a trajectory, less the step's own penalty. No bootstrap.

    Raises:
        ValueError: gamma is not in [0, 1].
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma={gamma}: a discount lies in [0, 1].")
    return batch.reward + gamma * sum_of_later(batch, batch.reward, gamma) - batch.penalty


def sum_of_later(batch: StepBatch, values: np.ndarray, factor: float) -> np.ndarray:
    """float64[N]: x_{t+1} + factor * x_{t+2} + factor^2 * x_{t+3} + ..., over the later steps of the trajectory."""
    table = np.zeros((batch.trajectory_labels.max(initial=-1) + 1, batch.step.max(initial=-1) + 2))
    table[batch.trajectory_labels, batch.step] = values
    for step in range(table.shape[1] - 2, -1, -1):
        table[:, step] += factor * table[:, step + 1]
    return table[batch.trajectory_labels, batch.step + 1]


def episode_returns(batch: StepBatch) -> np.ndarray:
    """float64[N]: the undiscounted sum of rewards of the step's episode."""
    return np.bincount(batch.trajectory_labels, weights=batch.reward)[batch.trajectory_labels]


def relative_to_group(values: np.ndarray, groups: np.ndarray, norm: str, *, ddof: int) -> np.ndarray:
    """float64[N]: each value relative to its set, (x - mean) / (std + 1e-6) or x - mean.

    Args:
        values: float64[N].
        groups: int64[N], 0, 1, 2, ... label the sets; rows with -1 are in no set.
        norm: `mean_std_norm` or `mean_norm`.
        ddof: the standard deviation divides by n - ddof.

    A row in no set or alone in its set gets 0, and so does, exactly, every row of a set whose values are all equal.
    Raises ValueError on an unknown norm.
    """
    relative = np.zeros(len(values))
    inside = groups >= 0
    mean, std = _moments(values[inside], groups[inside], ddof)
    relative[inside] = _normalise(values[inside] - mean[groups[inside]], std[groups[inside]], norm)
    return relative


def scaled_to_group(values: np.ndarray, groups: np.ndarray, norm: str) -> np.ndarray:
    """float64[N]: values that are relative already, with `mean_std_norm` over the root mean square of their set.

    Raises:
        ValueError: an unknown norm.
    """
    return _normalise(values, _root_mean_square(values, groups)[groups], norm)


def values_differ(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """bool[N]: the row's set carries signal, that is, not all its values are equal. False for rows in no set."""
    inside = groups >= 0
    differ = np.zeros(len(values), dtype=np.bool_)
    _, std = _moments(values[inside], groups[inside], ddof=0)
    differ[inside] = std[groups[inside]] > 0
    return differ


def episode_advantage(batch: StepBatch, norm: str, episode_statistics: str) -> np.ndarray:
    """float64[N]: the episode's return relative to its task group, standard deviation with n - 1.

    `episode_statistics` says what the mean and deviation are over: `trajectories`, one value an episode (the textbook
    form), or `steps`, every step counting once (so that long episodes weigh more, as in the published code). A step's
    penalty comes off its own value; over `trajectories` it does not move the group's mean, and the mean square of
    penalties is added to the variance, so that a penalty among equal returns is not divided by next to nothing. An
    episode without another one in its group has no baseline and keeps its own return.

    Raises:
        ValueError: an unknown norm or an unknown way to count.
    """
    if episode_statistics not in EPISODE_STATISTICS:
        raise ValueError(unknown_name("episode_statistics", episode_statistics, EPISODE_STATISTICS))
    groups = batch.group_labels
    returns = episode_returns(batch)
    values = returns - batch.penalty
    one_each = np.unique(batch.trajectory_labels, return_index=True)[1]
    if episode_statistics == "trajectories":
        mean, std = _moments(returns[one_each], groups[one_each], ddof=1)
        std = np.hypot(std, _root_mean_square(batch.penalty, groups))
    else:
        mean, std = _moments(values, groups, ddof=1)
    lone = np.bincount(groups[one_each])[groups] == 1
    return np.where(lone, values, _normalise(values - mean[groups], std[groups], norm))


def _normalise(centred: np.ndarray, std: np.ndarray, norm: str) -> np.ndarray:
    if norm not in NORMS:
        raise ValueError(unknown_name("norm", norm, NORMS))
    return centred / (std + EPSILON) if norm == "mean_std_norm" else centred


def _root_mean_square(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return np.sqrt(np.bincount(groups, weights=values**2) / np.maximum(np.bincount(groups), 1))


def _moments(values: np.ndarray, groups: np.ndarray, ddof: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each set. Equal values have exactly that mean and deviation 0."""
    size = np.bincount(groups)
    # Sums are taken around one of the set's values: rounding then cannot separate values that are equal.
    origin = np.zeros(len(size))
    origin[groups] = values
    mean = origin + np.bincount(groups, weights=values - origin[groups]) / np.maximum(size, 1)
    squares = np.bincount(groups, weights=(values - mean[groups]) ** 2)
    return mean, np.sqrt(squares / np.maximum(size - ddof, 1))
