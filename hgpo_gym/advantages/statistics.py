"""What every estimator is made of: discounted returns, and values relative to a set of steps.

Sets whose values differ by no more than rounding have equal values everywhere here: what comes out of them is exactly
0.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.suggest import unknown_name

NORMS = ("mean_std_norm", "mean_norm")
EPISODE_STATISTICS = ("trajectories", "steps")
EPSILON = 1e-6
ROUNDING = 1e-10
"""A set of values x with max - min <= ROUNDING * max(1, max|x|) has equal values."""


def discounted_returns(batch: StepBatch, gamma: float) -> np.ndarray:
    """float64[N]: G_t = r_t + gamma * G_{t+1} inside a trajectory, less the step's own penalty. No bootstrap.

    Raises:
        ValueError: gamma is not in [0, 1].
    """
    check_shares(gamma=gamma)
    return batch.reward + gamma * sum_of_later(batch, batch.reward, gamma) - batch.penalty


def check_shares(**options: float) -> None:
    """Raise ValueError unless each of these options lies in [0, 1]."""
    for name, value in options.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}={value}: choose a number from 0 to 1.")


def sum_of_later(batch: StepBatch, values: np.ndarray, factor: float) -> np.ndarray:
    """float64[N]: x_{t+1} + factor * x_{t+2} + factor^2 * x_{t+3} + ..., over the later steps of the trajectory."""
    return later_in_sequence(values, batch.trajectory_labels, batch.step, factor)


def later_in_sequence(values: np.ndarray, sequence: np.ndarray, place: np.ndarray, factor: float) -> np.ndarray:
    """The same over any sequences: int64[N] labels them 0, 1, 2, ..., int64[N] counts the places in each from 0."""
    table = np.zeros((place.max(initial=-1) + 2, sequence.max(initial=-1) + 1))
    table[place, sequence] = values
    for now in range(len(table) - 2, -1, -1):
        table[now] += factor * table[now + 1]
    return table[place + 1, sequence]


def episode_returns(batch: StepBatch, episode_gamma: float = 1.0) -> np.ndarray:
    """float64[N]: the sum of rewards of the step's episode, discounted from its first step on."""
    rewards = batch.reward * episode_gamma**batch.step
    return np.bincount(batch.trajectory_labels, weights=rewards)[batch.trajectory_labels]


def success(batch: StepBatch) -> np.ndarray:
    """bool[N]: whether the step's episode succeeded; where that was not recorded, whether its return is positive,
    and not by the rounding of its sum alone."""
    if batch.success is not None:
        return batch.success
    total = np.bincount(batch.trajectory_labels, weights=np.abs(batch.reward))[batch.trajectory_labels]
    return episode_returns(batch) > ROUNDING * total


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
    own, sets = snap_equal(values[inside], groups[inside]), groups[inside]
    mean, std = moments(own, sets, ddof)
    relative[inside] = _normalise(own - mean[sets], std[sets], norm)
    return relative


def over_unique_steps(
    batch: StepBatch, statistic: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray, sets: np.ndarray
) -> np.ndarray:
    """[N]: `statistic(values, sets)`, in which a step that several episodes share counts once, with the mean of its
    copies' values; every copy gets what the step gets."""
    if batch.shared is None:
        return statistic(values, sets)
    first, copies = batch.shared
    return statistic(mean_of_group(values, copies)[first], sets[first])[copies]


def mean_over_copies(batch: StepBatch, values: np.ndarray) -> np.ndarray:
    """float64[N]: on every copy of a step the mean over all its copies, 0 where they cancel but for rounding; where
    nothing is shared, the values."""
    if batch.shared is None:
        return values
    copies = batch.shared[1]
    means, largest = mean_of_group(values, copies), np.zeros(len(values))
    np.maximum.at(largest, copies, np.abs(values))
    return np.where(np.abs(means) <= ROUNDING * largest[copies], 0.0, means)


def means_of_copies(batch: StepBatch, tokens: Sequence[np.ndarray | None]) -> Sequence[np.ndarray | None]:
    """The same of advantages of tokens, whose copies have as many tokens each."""
    if batch.shared is None:
        return tokens
    copies: dict[int, list[np.ndarray]] = defaultdict(list)
    for step, own in zip(batch.shared[1].tolist(), tokens, strict=True):
        if own is not None:
            copies[step].append(own)
    means = {step: np.mean(own, axis=0) for step, own in copies.items()}
    return [means.get(step) for step in batch.shared[1].tolist()]


def moments(values: np.ndarray, groups: np.ndarray, ddof: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each set, by label. Equal values have exactly that mean and deviation 0."""
    size = np.bincount(groups)
    # Sums are taken around one of the set's values: rounding then cannot separate values that are equal.
    origin = np.zeros(len(size))
    origin[groups] = values
    mean = origin + np.bincount(groups, weights=values - origin[groups]) / np.maximum(size, 1)
    squares = np.bincount(groups, weights=(values - mean[groups]) ** 2)
    return mean, np.sqrt(squares / np.maximum(size - ddof, 1))


def whiten(values: np.ndarray, copies: np.ndarray | None = None) -> np.ndarray:
    """float64[N]: (x - mean) / sqrt(var + 1e-8) over all, var with n - 1. One value or equal values: 0.

    Args:
        values: float64[N].
        copies: int64[N], of the rows of one step that several episodes share equal; such a step counts once, with the
            mean of its copies' values. See `StepBatch.copies`.
    """
    if copies is not None:
        _, first, label = np.unique(copies, return_index=True, return_inverse=True)
        return whiten(mean_of_group(values, label)[first])[label]
    one_set = np.zeros(len(values), dtype=np.int64)
    own = snap_equal(values, one_set)
    mean, std = moments(own, one_set, ddof=1)
    return (own - mean[one_set]) / np.sqrt(std[one_set] ** 2 + 1e-8)


def snap_equal(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """float64[N]: the values; those of a set (labelled from 0) that are equal up to rounding, exactly equal."""
    highest = np.full(groups.max(initial=-1) + 1, -np.inf)
    lowest = -highest
    np.maximum.at(highest, groups, values)
    np.minimum.at(lowest, groups, values)
    scale = np.maximum(1.0, np.maximum(np.abs(highest), np.abs(lowest)))
    return np.where((highest - lowest <= ROUNDING * scale)[groups], lowest[groups], values)


def mean_of_group(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """float64[N]: the mean of each row's set; of equal values exactly that value."""
    return moments(values, groups, ddof=0)[0][groups]


def size_of_group(groups: np.ndarray) -> np.ndarray:
    """int64[N]: how many rows each row's set has."""
    return np.bincount(groups)[groups]


def joint_labels(*columns: np.ndarray) -> np.ndarray:
    """int64[N]: rows that are equal in every column have equal labels 0, 1, 2, ..."""
    together = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        own = labels(column)
        together = labels(together * (own.max(initial=-1) + 1) + own)
    return together


def scaled_to_group(values: np.ndarray, groups: np.ndarray, norm: str) -> np.ndarray:
    """float64[N]: values that are relative already, with `mean_std_norm` over the root mean square of their set.

    Values that are 0 up to rounding throughout their set are 0. Raises ValueError on an unknown norm.
    """
    largest = np.zeros(groups.max(initial=-1) + 1)
    np.maximum.at(largest, groups, np.abs(values))
    own = np.where(largest[groups] <= ROUNDING, 0.0, values)
    return _normalise(own, _root_mean_square(own, groups)[groups], norm)


def values_differ(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """bool[N]: the row's set carries signal, that is, not all its values are equal. False for rows in no set."""
    inside = groups >= 0
    differ = np.zeros(len(values), dtype=np.bool_)
    _, std = moments(snap_equal(values[inside], groups[inside]), groups[inside], ddof=0)
    differ[inside] = std[groups[inside]] > 0
    return differ


def episode_advantage(batch: StepBatch, norm: str, episode_statistics: str, episode_gamma: float = 1.0) -> np.ndarray:
    """float64[N]: the episode's return relative to its task group, standard deviation with n - 1.

    `episode_statistics` says what the mean and deviation are over: `trajectories`, one value an episode (the textbook
    form), or `steps`, every step counting once (so that long episodes weigh more, as in the published code). A step's
    penalty comes off its own value; over `trajectories` it does not move the group's mean, and the mean square of
    penalties is added to the variance, so that a penalty among equal returns is not divided by next to nothing. An
    episode without another one in its group has no baseline and keeps its own return.

    Raises:
        ValueError: an unknown norm, an unknown way to count, or a discount that is not in [0, 1].
    """
    if episode_statistics not in EPISODE_STATISTICS:
        raise ValueError(unknown_name("episode_statistics", episode_statistics, EPISODE_STATISTICS))
    check_shares(episode_gamma=episode_gamma)
    groups = batch.group_labels
    returns = snap_equal(episode_returns(batch, episode_gamma), groups)
    values = returns - batch.penalty
    one_each = batch.first_rows
    if episode_statistics == "trajectories":
        mean, std = moments(returns[one_each], groups[one_each], ddof=1)
        std = np.hypot(std, _root_mean_square(batch.penalty, groups))
    else:
        mean, std = moments(values, groups, ddof=1)
    lone = np.bincount(groups[one_each])[groups] == 1
    return np.where(lone, values, _normalise(values - mean[groups], std[groups], norm))


def _normalise(centred: np.ndarray, std: np.ndarray, norm: str) -> np.ndarray:
    if norm not in NORMS:
        raise ValueError(unknown_name("norm", norm, NORMS))
    return centred / (std + EPSILON) if norm == "mean_std_norm" else centred


def _root_mean_square(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return np.sqrt(np.bincount(groups, weights=values**2) / np.maximum(np.bincount(groups), 1))
