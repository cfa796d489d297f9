"""Continuations of one snapshot against one another."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import episode_returns, joint_labels, mean_of_group, size_of_group, snap_equal


@needs("branch")
def siblings(batch: StepBatch) -> np.ndarray:
    """Siblings: episodes that continue one snapshot, each against the mean of the others (BPO, arXiv:2607.14171; SRPO,
    arXiv:2605.25507; C3, arXiv:2603.06859; the local part of Tree-GRPO, arXiv:2509.21240).

        A = R - mean(R of the other episodes of the task group with the same `branch`) - p

    with p the step's penalty; alone, 0. Train on what comes after the snapshot only: carried in every sibling, the
    shared steps get advantages that sum to 0, so their gradient is noise. No options. Source: code for C3 and
    Tree-GRPO, third party for the others.

    Returns float64[N]. Raises ValueError on a missing column.
    """
    first = batch.first_rows
    family = joint_labels(batch.group_labels[first], batch.column("branch", "siblings")[first])
    returns = snap_equal(episode_returns(batch)[first], family)
    size = size_of_group(family)
    others = size / np.maximum(size - 1, 1)
    advantage = others * (returns - mean_of_group(returns, family))
    return advantage[batch.trajectory_labels] - batch.penalty
