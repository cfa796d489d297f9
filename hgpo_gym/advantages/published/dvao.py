"""Several rewards, weighted by their variation."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.rewards import episode_rewards
from hgpo_gym.advantages.statistics import EPSILON, moments, snap_equal


@needs("reward_vector")
def dvao(batch: StepBatch, *, weights: Sequence[float] | None = None) -> np.ndarray:
    """DVAO (arXiv:2605.25604): several rewards of an episode, summed before scaling.

        A = sum_k w_k (r_k - mean_k) / sum_k w_k sigma_k - p

    over the episodes of the task group, with the deviation's n and p the step's penalty. This is a mean of z-scores
    with weights w_k sigma_k, so a reward that does not vary in the group has no influence. If no reward varies, the
    first term is 0. Family: several rewards, roles. Source: third party.

    A reward with a large deviation outweighs the others, so choose units or weights with care.

    Args:
        batch: the steps, with the column `reward_vector`.
        weights: one per reward, scaled to sum 1; None weighs them alike.

    Returns float64[N]. Raises ValueError on weights that do not fit, or a missing column.
    """
    rewards, weighing = episode_rewards(batch, weights, "dvao")
    if not weighing.sum() > 0:
        raise ValueError(f"weights={weights}: dvao scales them to sum 1; choose a sum above 0.")
    group = batch.group_labels[batch.first_rows]
    total, spread = np.zeros(len(rewards)), np.zeros(len(rewards))
    for share, values in zip(weighing / weighing.sum(), rewards.T, strict=True):
        snapped = snap_equal(values, group)
        mean, std = moments(snapped, group, ddof=0)
        total += share * (snapped - mean[group])
        spread += share * std[group]
    # np.where evaluates both branches: the maximum avoids a division by 0.
    advantage = np.where(spread <= EPSILON, 0.0, total / np.maximum(spread, EPSILON))
    return advantage[batch.trajectory_labels] - batch.penalty
