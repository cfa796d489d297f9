"""Group bounded policy optimization: an advantage, and a target for the probability ratio."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.statistics import EPSILON, NORMS, episode_returns, moments, size_of_group, snap_equal
from hgpo_gym.suggest import unknown_name


def gbpo(batch: StepBatch, *, norm: str = "mean_std_norm", temperature: float = 1.0) -> Advantages:
    """The signals of GBPO (arXiv:2604.18578): GRPO's advantage, and a target for the probability ratio.

    The objective `gbpo` moves the ratio to the target, from 0 (its lower bound) to 1 (its upper bound).

        A = (R - mean) / (std + 1e-6) - p
        target = sigmoid((R - median) / (std + 1e-6) / temperature)

    over the episodes of the task group, with the deviation's n - 1 and p the step's penalty. If returns are equal, A is
    -p and the target 1/2. A single episode uses R in place of both relative values. Family: episodes of a task. Source:
    code (bounded-ratio-rl/bounded_ratio_rl). The `bpo` objectives of this project are unrelated to `siblings`.

    Without the objective `gbpo` the target has no effect, and the rest is almost `grpo`.

    Args:
        batch: the steps.
        norm: `mean_std_norm`, or `mean_norm` without the divisions by the deviation.
        temperature: above 0; the published runs' 1e-4 makes every target 0, 1/2 or 1.

    Returns the values float64[N] and the extra `target`, float64[N]. Raises ValueError on an unknown `norm` or a
    temperature that is not above 0.
    """
    if norm not in NORMS:
        raise ValueError(unknown_name("norm", norm, NORMS))
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: choose a number above 0.")
    first = batch.first_rows
    group = batch.group_labels[first]
    returns = snap_equal(episode_returns(batch)[first], group)
    mean, std = moments(returns, group, ddof=1)
    is_single = size_of_group(group) == 1
    scale = np.where(is_single | (norm == "mean_norm"), 1.0, std[group] + EPSILON)
    advantage = np.where(is_single, returns, returns - mean[group]) / scale
    above = np.where(is_single, returns, returns - _median(returns, group)[group]) / scale / temperature
    # sigmoid(x) = (1 + tanh(x / 2)) / 2 does not overflow at a small temperature.
    target = 0.5 * (1.0 + np.tanh(0.5 * above))
    episode = batch.trajectory_labels
    return Advantages(advantage[episode] - batch.penalty, {"target": target[episode]})


def _median(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the median of each group, float64[groups], by label."""
    # By group, then by value: the middle of each group's part is its median.
    ordered = values[np.lexsort((values, groups))]
    size = np.bincount(groups)
    begin = np.cumsum(size) - size
    return 0.5 * (ordered[begin + (size - 1) // 2] + ordered[begin + size // 2])
