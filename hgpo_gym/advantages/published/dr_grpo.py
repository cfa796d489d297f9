"""Dr. GRPO's advantage."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import episode_advantage


def dr_grpo(batch: StepBatch) -> np.ndarray:
    """The advantage of Dr. GRPO (Liu et al., 2025, arXiv:2503.20783): GRPO's without the division by the deviation.

        A = R - mean(R of the task group) - p

    with p the step's penalty. The division favours tasks that are nearly always or nearly never solved. This is `grpo`
    with `norm=mean_norm`. The other half of Dr. GRPO is its loss, a sum over tokens divided by a constant. No options.
    Family: episodes of a task. Source: third party (verl's code).

    Like GRPO it gives all steps of an episode the same credit.

    Returns float64[N].
    """
    return episode_advantage(batch, "mean_norm", "trajectories")
