"""REINFORCE++."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import over_the_batch
from hgpo_gym.advantages.statistics import discounted_returns, whiten


@over_the_batch
def reinforce_pp(batch: StepBatch, *, gamma: float = 1.0) -> np.ndarray:
    """REINFORCE++ (Hu et al., 2025, arXiv:2501.03262): returns whitened over the whole batch, without a task baseline.

        A = whiten(G_t - p),   whiten(x) = (x - mean) / sqrt(var + 1e-8) over all steps

    with p the step's penalty. Family: episodes of a task. Source: third party (verl's code, which whitens over tokens).

    Avoid it where tasks differ in difficulty: failures of hard and easy tasks are blamed alike.

    Args:
        batch: the steps.
        gamma: discount of the step returns G_t.

    Returns float64[N]. Raises ValueError on a gamma outside [0, 1].
    """
    return whiten(discounted_returns(batch, gamma), batch.copies)
