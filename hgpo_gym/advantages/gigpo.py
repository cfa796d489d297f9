"""Group-in-Group Policy Optimization."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import discounted_returns, episode_advantage, over_unique_steps, relative_to_group


def gigpo(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    norm: str = "mean_std_norm",
    step_advantage_weight: float = 1.0,
    episode_statistics: str = "trajectories",
) -> np.ndarray:
    """Group-in-Group Policy Optimization (Feng et al., 2025, arXiv:2505.10978).

        A = A_episode + w * (G_t - mean(G of steps with the same observation)) / (std + 1e-6)

    The first term compares the episode within its task group. The second compares the step with the group's steps that
    have the same observation. Family: steps with equal histories.

    Args:
        batch: the steps.
        gamma: discount of the step returns G_t.
        norm: `mean_std_norm`, or `mean_norm` without the divisions.
        step_advantage_weight: w, the weight of the step's term.
        episode_statistics: mean and deviation over `trajectories` or over `steps`, see `episode_advantage`.

    Returns float64[N]; a step with a unique observation has only the episode term. Raises ValueError on an unknown
    `norm` or `episode_statistics`, or a gamma outside [0, 1].
    """
    returns = discounted_returns(batch, gamma)
    relative = partial(relative_to_group, norm=norm, ddof=1)
    step_advantage = over_unique_steps(batch, relative, returns, batch.key_groups(level=0))
    return episode_advantage(batch, norm, episode_statistics) + step_advantage_weight * step_advantage
