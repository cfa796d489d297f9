"""Statistics that estimators share: discounted returns, and values relative to a set of steps.

Values of a set that differ only by rounding count as equal, so their relative values are exactly 0.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.suggest import unknown_name

NORMS = ("mean_std_norm", "mean_norm")
EPISODE_STATISTICS = ("trajectories", "steps")
EPSILON = 1e-6
ROUNDING = 1e-10
"""A set of values x with max - min <= ROUNDING * max(1, max|x|) has equal values."""


def discounted_returns(batch: StepBatch, gamma: float) -> np.ndarray:
    """Return float64[N]: G_t = r_t + gamma * G_{t+1} in a trajectory, less the step's penalty. No bootstrap.

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
    """Return float64[N]: x_{t+1} + factor * x_{t+2} + factor^2 * x_{t+3} + ..., over later steps of the trajectory."""
    return later_in_sequence(values, batch.trajectory_labels, batch.step, factor)


def later_in_sequence(values: np.ndarray, sequence: np.ndarray, place: np.ndarray, factor: float) -> np.ndarray:
    """Return the sum of `sum_of_later` over any sequences.

    Args:
        values: float64[N].
        sequence: int64[N], labels 0, 1, 2, ... of the sequences.
        place: int64[N], the position in the sequence: 0, 1, 2, ... without gaps.
        factor: the discount.
    """
    # One vectorised pass per place, from the last to the first, over the sequences that reach it. The longest come
    # first, so these are the first ones of each place, and nothing is padded.
    lengths, active = np.bincount(sequence), np.bincount(place)
    rank = np.empty(len(lengths), dtype=np.int64)
    rank[np.argsort(-lengths)] = np.arange(len(lengths))
    begin = np.cumsum(active) - active
    slot = begin.take(place) + rank.take(sequence)
    goes_on = place + 1 < lengths.take(sequence)
    packed = np.zeros(len(values) + 1)
    packed[slot] = values + np.where(goes_on, -0.0, 0.0)  # as if 0.0 followed a last value: no -0.0 there
    # Places that the longest sequence alone reaches: numbers are faster than arrays of one.
    shared = int(np.count_nonzero(active > 1))
    unshared = packed[int(active[:shared].sum()) : len(values)]
    unshared[::-1] = list(accumulate(unshared[::-1].tolist(), lambda later, value: value + factor * later))
    bounds, discount = [*begin.tolist(), len(values)], np.array(factor)  # a Python number is converted each time
    for position in range(min(shared, len(active) - 1) - 1, -1, -1):
        start, after, end = bounds[position : position + 3]
        earlier = packed[start : start + end - after]
        earlier += discount * packed[after:end]
    return packed.take(np.where(goes_on, slot + active.take(place), len(values)))


def members_of(groups: np.ndarray) -> list[np.ndarray]:
    """Return the sorted indices int64[n] of each set, by its label 0, 1, 2, ..."""
    offsets = np.cumsum(np.bincount(groups))
    return np.split(np.argsort(groups, kind="stable"), offsets[:-1]) if len(offsets) else []


def episode_returns(batch: StepBatch, episode_gamma: float = 1.0) -> np.ndarray:
    """Return the discounted return of each step's episode from its first step, float64[N]."""
    # bincount sums by label in the order of rows: the same rows give the same rounding.
    rewards = batch.reward * episode_gamma**batch.step
    return np.bincount(batch.trajectory_labels, weights=rewards)[batch.trajectory_labels]


def success(batch: StepBatch) -> np.ndarray:
    """Return whether each step's episode succeeded, bool[N]; if not recorded, whether its return is positive.

    A return that is positive only by rounding does not count.
    """
    if batch.success is not None:
        return batch.success
    total = np.bincount(batch.trajectory_labels, weights=np.abs(batch.reward))[batch.trajectory_labels]
    return episode_returns(batch) > ROUNDING * total


def relative_to_group(values: np.ndarray, groups: np.ndarray, norm: str, *, ddof: int) -> np.ndarray:
    """Return each value relative to its set, (x - mean) / (std + 1e-6) or x - mean, float64[N].

    Args:
        values: float64[N].
        groups: int64[N], labels 0, 1, 2, ... of the sets; rows with -1 are in no set.
        norm: `mean_std_norm` or `mean_norm`.
        ddof: the standard deviation divides by n - ddof.

    A row in no set, a row alone in its set, and all rows of a set with equal values get exactly 0. Raises ValueError on
    an unknown norm.
    """
    return compare_in_group(values, groups, norm, ddof=ddof)[:, 0]


def compare_in_group(values: np.ndarray, groups: np.ndarray, norm: str, *, ddof: int) -> np.ndarray:
    """Return float64[N, 2]: the values of `relative_to_group`, and 1 where the values of a row's set differ, else 0."""
    relative, differ = compared = np.zeros((2, len(values)))
    sets_differ = ~_equal_sets(values, groups + 1)[0]
    sets_differ[:1] = False  # of rows in no set
    rows_differ = sets_differ.take(groups + 1)
    inside = slice(None) if rows_differ.all() else np.flatnonzero(rows_differ)  # a slice spares copies
    values, sets = values[inside], groups[inside]
    mean, std = moments(values, sets, ddof)
    relative[inside] = _normalise(values - mean.take(sets), std.take(sets), norm)
    differ[inside] = 1.0
    return compared.T


def over_unique_steps(
    batch: StepBatch, statistic: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray, sets: np.ndarray
) -> np.ndarray:
    """Return `statistic(values, sets)` over distinct steps, [N].

    A step that several episodes share counts once, with the mean of its copies' values. Every copy gets the step's
    result.
    """
    if batch.shared is None:
        return statistic(values, sets)
    first, copies = batch.shared
    return statistic(mean_of_group(values, copies)[first], sets[first])[copies]


def mean_over_copies(batch: StepBatch, values: np.ndarray) -> np.ndarray:
    """Return the mean over all copies of each step, float64[N]; 0 if they cancel up to rounding.

    Without shared steps the values are returned unchanged.
    """
    if batch.shared is None:
        return values
    copies = batch.shared[1]
    means, largest = mean_of_group(values, copies), np.zeros(len(values))
    # `.at` counts every repetition of an index, plain indexing only the last.
    np.maximum.at(largest, copies, np.abs(values))
    return np.where(np.abs(means) <= ROUNDING * largest[copies], 0.0, means)


def means_of_copies(batch: StepBatch, tokens: Sequence[np.ndarray | None]) -> Sequence[np.ndarray | None]:
    """Return token advantages averaged over the copies of each step. Copies have equal numbers of tokens."""
    if batch.shared is None:
        return tokens
    copies: dict[int, list[np.ndarray]] = defaultdict(list)
    for step, token_values in zip(batch.shared[1].tolist(), tokens, strict=True):
        if token_values is not None:
            copies[step].append(token_values)
    means = {step: np.mean(token_values, axis=0) for step, token_values in copies.items()}
    return [means.get(step) for step in batch.shared[1].tolist()]


def moments(values: np.ndarray, groups: np.ndarray, ddof: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each set, by label. Equal values give exactly this mean and deviation 0."""
    size = np.bincount(groups)
    # Sum the differences to one value of the set: equal values then give exactly this mean, without rounding.
    origin = np.zeros(len(size))
    origin[groups] = values
    mean = origin + np.bincount(groups, weights=values - origin.take(groups)) / np.maximum(size, 1)
    squares = np.bincount(groups, weights=(values - mean.take(groups)) ** 2)
    return mean, np.sqrt(squares / np.maximum(size - ddof, 1))


def whiten(values: np.ndarray, copies: np.ndarray | None = None) -> np.ndarray:
    """Return (x - mean) / sqrt(var + 1e-8) over all rows, float64[N], var with n - 1. Equal values give 0.

    Args:
        values: float64[N].
        copies: int64[N], equal on all copies of a step; such a step counts once, with the mean of its copies' values.
            See `StepBatch.copies`.
    """
    if copies is not None:
        _, first, label = np.unique(copies, return_index=True, return_inverse=True)
        return whiten(mean_of_group(values, label)[first])[label]
    single_group = np.zeros(len(values), dtype=np.int64)
    snapped = snap_equal(values, single_group)
    mean, std = moments(snapped, single_group, ddof=1)
    return (snapped - mean[single_group]) / np.sqrt(std[single_group] ** 2 + 1e-8)


def snap_equal(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return float64[N] with the values of a set (labelled from 0) made exactly equal if they are so up to rounding."""
    equal, lowest = _equal_sets(values, groups)
    return np.where(equal.take(groups), lowest.take(groups), values)


def _equal_sets(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, by label, whether the values of a set are equal up to rounding, and the lowest of them."""
    highest = np.full(groups.max(initial=-1) + 1, -np.inf)
    lowest = -highest
    np.maximum.at(highest, groups, values)
    np.minimum.at(lowest, groups, values)
    scale = np.maximum(1.0, np.maximum(np.abs(highest), np.abs(lowest)))
    return highest - lowest <= ROUNDING * scale, lowest


def mean_of_group(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the mean of each row's set, float64[N]; for equal values exactly this value."""
    return moments(values, groups, ddof=0)[0][groups]


def size_of_group(groups: np.ndarray) -> np.ndarray:
    """Return the number of rows in each row's set, int64[N]."""
    return np.bincount(groups)[groups]


def joint_labels(*columns: np.ndarray) -> np.ndarray:
    """Return labels int64[N] 0, 1, 2, ..., equal for rows that are equal in every column."""
    joint = np.zeros(len(columns[0]), dtype=np.int64)
    # Labels are made dense after each column: products of label counts then stay far below 2^63.
    for column in columns:
        column_labels = labels(column)
        joint = labels(joint * (column_labels.max(initial=-1) + 1) + column_labels)
    return joint


def scaled_to_group(values: np.ndarray, groups: np.ndarray, norm: str) -> np.ndarray:
    """Return relative values, divided by the root mean square of their set for `mean_std_norm`, float64[N].

    If all values of a set are 0 up to rounding, they become 0. Raises ValueError on an unknown norm.
    """
    largest = np.zeros(groups.max(initial=-1) + 1)
    np.maximum.at(largest, groups, np.abs(values))
    nonzero = np.where(largest[groups] <= ROUNDING, 0.0, values)
    return _normalise(nonzero, _root_mean_square(nonzero, groups)[groups], norm)


def values_differ(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return whether the values of each row's set differ, bool[N]. False for rows in no set."""
    return compare_in_group(values, groups, "mean_norm", ddof=0)[:, 1] > 0


def episode_advantage(batch: StepBatch, norm: str, episode_statistics: str, episode_gamma: float = 1.0) -> np.ndarray:
    """Return the episode's return relative to its task group, float64[N], with the deviation's n - 1.

    `episode_statistics=trajectories` computes mean and deviation with one value per episode (the textbook form).
    `steps` counts every step, so long episodes weigh more (as in the published code).

    A step's penalty is subtracted from its own value. With `trajectories` it does not move the group's mean, and the
    mean square of penalties is added to the variance. Otherwise a penalty among equal returns would be divided by
    nearly 0. A single episode in its group has no baseline and keeps its return.

    Raises:
        ValueError: an unknown norm or `episode_statistics`, or a discount outside [0, 1].
    """
    if episode_statistics not in EPISODE_STATISTICS:
        raise ValueError(unknown_name("episode_statistics", episode_statistics, EPISODE_STATISTICS))
    check_shares(episode_gamma=episode_gamma)
    groups = batch.group_labels
    returns = snap_equal(episode_returns(batch, episode_gamma), groups)
    values = returns - batch.penalty
    first_rows = batch.first_rows
    if episode_statistics == "trajectories":
        mean, std = moments(returns[first_rows], groups[first_rows], ddof=1)
        # Without the penalties' share, equal returns would leave only EPSILON to divide a penalty by.
        std = np.hypot(std, _root_mean_square(batch.penalty, groups))
    else:
        mean, std = moments(values, groups, ddof=1)
    is_single = np.bincount(groups[first_rows])[groups] == 1
    return np.where(is_single, values, _normalise(values - mean[groups], std[groups], norm))


def _normalise(centred: np.ndarray, std: np.ndarray, norm: str) -> np.ndarray:
    if norm not in NORMS:
        raise ValueError(unknown_name("norm", norm, NORMS))
    return centred / (std + EPSILON) if norm == "mean_std_norm" else centred


def _root_mean_square(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return np.sqrt(np.bincount(groups, weights=values**2) / np.maximum(np.bincount(groups), 1))
