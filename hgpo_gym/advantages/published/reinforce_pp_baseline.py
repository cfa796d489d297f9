"""REINFORCE++ with a baseline."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import over_the_batch
from hgpo_gym.advantages.statistics import episode_advantage, whiten


@over_the_batch
def reinforce_pp_baseline(batch: StepBatch) -> np.ndarray:
    """REINFORCE++ with a baseline (Hu et al., 2025, arXiv:2501.03262).

        A = whiten(R - mean(R of the task group) - p),   whiten(x) = (x - mean) / sqrt(var + 1e-8) over all steps

    with p the step's penalty. A group of one episode has no baseline. No options. Family: episodes of a task. Source:
    third party (verl's code, which whitens over tokens).

    In a batch with few mixed groups the deviation is small, and those groups are scaled up.

    Returns float64[N].
    """
    return whiten(episode_advantage(batch, "mean_norm", "trajectories"), batch.copies)
