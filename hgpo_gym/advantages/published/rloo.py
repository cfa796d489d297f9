"""REINFORCE with a leave-one-out baseline."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import episode_returns, mean_of_group, size_of_group, snap_equal


def rloo(batch: StepBatch) -> np.ndarray:
    """REINFORCE leave-one-out (Ahmadian et al., ACL 2024, arXiv:2402.14740).

        A = R - mean(R of the other episodes of the task group) - p = n / (n - 1) * (R - mean(R)) - p

    with p the step's penalty. The baseline excludes the episode itself, and nothing is divided by the deviation. A
    group of one keeps its return. No options. Family: episodes of a task. Source: third party (verl's code).

    Like GRPO it gives all steps of an episode the same credit.

    Returns float64[N].
    """
    first = batch.first_rows
    group = batch.group_labels[first]
    returns = snap_equal(episode_returns(batch)[first], group)
    size = size_of_group(group)
    # n / (n - 1) times the distance to the whole mean is the distance to the mean of the others.
    leave_one_out = size / np.maximum(size - 1, 1)
    advantage = np.where(size == 1, returns, leave_one_out * (returns - mean_of_group(returns, group)))
    return advantage[batch.trajectory_labels] - batch.penalty
