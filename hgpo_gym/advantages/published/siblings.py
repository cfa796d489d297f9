"""Comparison of the continuations of one snapshot."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import episode_returns, joint_labels, mean_of_group, size_of_group, snap_equal


@needs("branch")
def siblings(batch: StepBatch) -> np.ndarray:
    """Compare each episode with the mean of the other episodes that continue the same snapshot.

        A = R - mean(R of the other episodes of the task group with the same `branch`) - p

    with p the step's penalty. A single continuation has relative return 0. Train only on steps after the snapshot: the
    advantages of shared steps sum to 0 over the siblings, so their gradient is noise. No options.

    BPO (arXiv:2607.14171), SRPO (arXiv:2605.25507), C3 (arXiv:2603.06859) and the local part of Tree-GRPO
    (arXiv:2509.21240) have this form. Family: episodes of a special sampler. Source: code for C3 and Tree-GRPO, third
    party for the others.

    Returns float64[N]. Raises ValueError on a missing column.
    """
    first = batch.first_rows
    branch = joint_labels(batch.group_labels[first], batch.column("branch", "siblings")[first])
    returns = snap_equal(episode_returns(batch)[first], branch)
    size = size_of_group(branch)
    # n / (n - 1) times the distance to the whole mean is the distance to the mean of the others.
    leave_one_out = size / np.maximum(size - 1, 1)
    advantage = leave_one_out * (returns - mean_of_group(returns, branch))
    return advantage[batch.trajectory_labels] - batch.penalty
