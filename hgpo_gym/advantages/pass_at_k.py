"""Pass@k training: credit for the best episode of a group."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import EPSILON, NORMS, ROUNDING, episode_returns, moments
from hgpo_gym.suggest import unknown_name


def pass_at_k(batch: StepBatch, *, norm: str = "mean_std_norm") -> np.ndarray:
    """Pass@k policy optimization (Tang et al., 2025, arXiv:2503.19595): only the best episode of a task group gets
    credit, and as much as it was better than the second. It optimises the best of n, not the mean.

        A = (R_max - R_second) / (std(R of the task group) + 1e-6) - p   for the best episode's steps, else -p

    with the deviation's n - 1 and p the step's penalty. Where several are best, and in a lone episode, nothing is
    better. Source: third party (verl's code, which refuses lone episodes and credits one row of the best).

    Args:
        batch: the steps.
        norm: `mean_std_norm`, or `mean_norm` without the division.

    Returns float64[N]. Raises ValueError on an unknown `norm`.
    """
    if norm not in NORMS:
        raise ValueError(unknown_name("norm", norm, NORMS))
    first = batch.first_rows
    group, returns = batch.group_labels[first], episode_returns(batch)[first]
    order = np.lexsort((returns, group))
    best = np.append(group[order[1:]] != group[order[:-1]], np.ones(min(1, len(order)), dtype=np.bool_))
    rows = order[best]
    second = order[np.flatnonzero(best) - 1]
    lead = returns[rows] - returns[second]
    scale = np.maximum(1.0, np.maximum(np.abs(returns[rows]), np.abs(returns[second])))
    lead[(group[second] != group[rows]) | (lead <= ROUNDING * scale)] = 0.0
    advantage = np.zeros(len(first))
    advantage[rows] = lead / (moments(returns, group, ddof=1)[1][group[rows]] + EPSILON if norm == NORMS[0] else 1.0)
    return advantage[batch.trajectory_labels] - batch.penalty
