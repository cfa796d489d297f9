"""Group relative advantages role by role."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import EPSILON, NORMS, episode_returns, joint_labels, moments, snap_equal
from hgpo_gym.suggest import unknown_name


@needs("agent")
def dr_mas(batch: StepBatch, *, norm: str = "mean_std_norm", statistics_of: int | None = None) -> np.ndarray:
    """Dr. MAS (arXiv:2602.08847): the episode's return relative to the steps of its task by the same role.

    Each step counts once, so a role with many responses does not set the scale of the others.

        A = (R - p - mean) / (std + 1e-6)   over the steps of the task group by the same role

    with the deviation's n - 1 and p the step's penalty. A single step keeps R - p (as published). With one role it is
    GRPO with `episode_statistics=steps`, except for groups of one episode. Family: several rewards, roles. Source: code
    (langfengQ/DrMAS).

    It separates the scales of the roles. It does not say which role deserves the outcome.

    Args:
        batch: the steps, with the column `agent`.
        norm: `mean_std_norm`, or `mean_norm` without the division.
        statistics_of: None, or the number of one role whose mean and deviation apply to all roles (CoDA's PECO; code:
            liuxuanzhang718/CoDA). If that role has at most one step in a task group, steps keep R - p. If its values
            are all equal, nothing is divided.

    Returns float64[N]. Raises ValueError on an unknown `norm` or a missing column.
    """
    if norm not in NORMS:
        raise ValueError(unknown_name("norm", norm, NORMS))
    agent = batch.column("agent", "dr_mas")
    values = episode_returns(batch) - batch.penalty
    if statistics_of is None:
        sets, counted = joint_labels(batch.group_labels, agent), np.ones(len(batch), dtype=np.bool_)
    else:
        sets, counted = batch.group_labels, agent == statistics_of
    values = snap_equal(values, sets)
    values[counted] = snap_equal(values[counted], sets[counted])
    count = sets.max(initial=-1) + 1
    size = np.bincount(sets[counted], minlength=count)
    mean, std = np.zeros(count), np.zeros(count)
    counted_mean, counted_std = moments(values[counted], sets[counted], ddof=1)
    # `moments` ends at the largest counted label; later sets keep mean and deviation 0.
    mean[: len(counted_mean)], std[: len(counted_std)] = counted_mean, counted_std
    scaled = (std > 0) & (norm == "mean_std_norm")
    relative = (values - mean[sets]) / np.where(scaled, std + EPSILON, 1.0)[sets]
    return np.where(size[sets] <= 1, values, relative)
