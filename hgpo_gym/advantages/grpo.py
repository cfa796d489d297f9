"""Group Relative Policy Optimization."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import episode_advantage


def grpo(
    batch: StepBatch,
    *,
    norm: str = "mean_std_norm",
    episode_statistics: str = "trajectories",
    episode_gamma: float = 1.0,
) -> np.ndarray:
    """Group Relative Policy Optimization (Shao et al., 2024, arXiv:2402.03300).

        A = (R - mean(R of the task group)) / (std + 1e-6)

    Every step of an episode has the same first term. Penalties: see `episode_advantage`. Family: episodes of a task.

    Args:
        batch: the steps.
        norm: `mean_std_norm`, or `mean_norm` without the division.
        episode_statistics: mean and deviation over `trajectories` or over `steps`, see `episode_advantage`.
        episode_gamma: discount of the episode's return, from its first step on; 1 is no discount, as published.

    Returns float64[N]. Raises ValueError on an unknown `norm` or `episode_statistics`, or an `episode_gamma`
    outside [0, 1].
    """
    return episode_advantage(batch, norm, episode_statistics, episode_gamma)
