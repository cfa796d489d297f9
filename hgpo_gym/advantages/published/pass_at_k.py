"""Pass@k training: credit for the best episode of a group."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import EPSILON, NORMS, ROUNDING, episode_returns, moments
from hgpo_gym.suggest import unknown_name


def pass_at_k(batch: StepBatch, *, norm: str = "mean_std_norm") -> np.ndarray:
    """Pass@k policy optimization (Tang et al., 2025, arXiv:2503.19595): credit only for a group's best episode.

    The credit is its lead over the second best. This optimises the best of n, not the mean.

        A = (R_max - R_second) / (std(R of the task group) + 1e-6) - p   for the best episode's steps, else -p

    with the deviation's n - 1 and p the step's penalty. With several best episodes, or in a group of one, the lead is
    0. Family: episodes of a task. Source: third party (verl's code, which refuses groups of one and credits one row of
    the best).

    Avoid it where the mean success rate counts. With success or failure alone it learns only from groups with
    exactly one success.

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
    # After the sort, the last episode of each group is its best, and the one before is its second.
    best = np.append(group[order[1:]] != group[order[:-1]], np.ones(min(1, len(order)), dtype=np.bool_))
    rows = order[best]
    second = order[np.flatnonzero(best) - 1]
    margin = returns[rows] - returns[second]
    scale = np.maximum(1.0, np.maximum(np.abs(returns[rows]), np.abs(returns[second])))
    margin[(group[second] != group[rows]) | (margin <= ROUNDING * scale)] = 0.0
    advantage = np.zeros(len(first))
    advantage[rows] = margin / (moments(returns, group, ddof=1)[1][group[rows]] + EPSILON if norm == NORMS[0] else 1.0)
    return advantage[batch.trajectory_labels] - batch.penalty
