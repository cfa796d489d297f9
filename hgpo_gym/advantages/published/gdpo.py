"""Several rewards, each normalised before the sum."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs, over_the_batch
from hgpo_gym.advantages.rewards import episode_rewards
from hgpo_gym.advantages.statistics import relative_to_group, whiten


@needs("reward_vector")
@over_the_batch
def gdpo(batch: StepBatch, *, weights: Sequence[float] | None = None) -> np.ndarray:
    """GDPO (arXiv:2601.05242): several rewards of an episode, each normalised in its task group before the sum.

    Different combinations of rewards thus keep different advantages.

        A = whiten(sum_k w_k (r_k - mean_k) / (std_k + 1e-6)) - p

    over the episodes of the task group, with the deviation's n - 1, whitened over all steps of the batch, and p the
    step's penalty. Family: several rewards, roles. Source: third party, which whitens over tokens.

    A reward that hardly varies counts as much as one that decides the task; `dvao` weighs by deviation.

    Args:
        batch: the steps, with the column `reward_vector`.
        weights: one per reward; None weighs each with 1.

    Returns float64[N]. Raises ValueError on weights that do not fit, or a missing column.
    """
    rewards, weighing = episode_rewards(batch, weights, "gdpo")
    group = batch.group_labels[batch.first_rows]
    total = np.zeros(len(rewards))
    for weight, values in zip(weighing, rewards.T, strict=True):
        total += weight * relative_to_group(values, group, "mean_std_norm", ddof=1)
    return whiten(total[batch.trajectory_labels], batch.copies) - batch.penalty
