"""Comparison of leaves within their tree and their task group."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import episode_returns, joint_labels, relative_to_group, size_of_group
from hgpo_gym.suggest import unknown_name

FORMS = ("tree", "tree_2norm", "tree_inner")


@needs("tree")
def tree_grpo(batch: StepBatch, *, advantage_of_a_leaf: str = "tree") -> np.ndarray:
    """Tree-GRPO (Ji et al., 2025, arXiv:2509.21240): compare leaves of trees within their tree and their task group.

        tree:        A = z(R over the task group) + z(R over the tree) - p
        tree_2norm:  A = z(z(R over the task group) over the tree) - p
        tree_inner:  A = z(R over the tree) - p

    with z(x) = (x - mean) / (std + 1e-6), n - 1, each leaf once, and p the step's penalty. In a set of one leaf z keeps
    the value. Episodes are the leaves; the sampler `tree` chooses the branch points. Family: episodes of a special
    sampler. Source: code (AMAP-ML/Tree-GRPO).

    Other estimators work on trees too: several episodes visit the same state at a branch point.

    Args:
        batch: the steps, with the column `tree`; a tree belongs to one task group.
        advantage_of_a_leaf: `tree` adds both comparisons, `tree_2norm` makes one of the other, `tree_inner` compares
            within the tree alone.

    Returns float64[N]. Raises ValueError on an unknown form or a missing column.
    """
    if advantage_of_a_leaf not in FORMS:
        raise ValueError(unknown_name("advantage_of_a_leaf", advantage_of_a_leaf, FORMS))
    leaf = batch.first_rows
    returns, task = episode_returns(batch)[leaf], batch.group_labels[leaf]
    tree = joint_labels(task, batch.column("tree", "tree_grpo")[leaf])
    if advantage_of_a_leaf == "tree":
        advantage = _relative(returns, task) + _relative(returns, tree)
    elif advantage_of_a_leaf == "tree_2norm":
        advantage = _relative(_relative(returns, task), tree)
    else:
        advantage = _relative(returns, tree)
    return advantage[batch.trajectory_labels] - batch.penalty


def _relative(values: np.ndarray, sets: np.ndarray) -> np.ndarray:
    return np.where(size_of_group(sets) == 1, values, relative_to_group(values, sets, "mean_std_norm", ddof=1))
