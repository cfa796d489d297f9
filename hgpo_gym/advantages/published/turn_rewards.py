"""Turn-level rewards in addition to the outcome."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import (
    check_shares,
    episode_returns,
    joint_labels,
    over_unique_steps,
    relative_to_group,
    sum_of_later,
)
from hgpo_gym.advantages.values import is_last


@needs("turn_reward")
def turn_rewards(batch: StepBatch, *, gamma: float = 1.0, joint: bool = True) -> np.ndarray:
    """Turn-level rewards as in IGPO (ICLR 2026, arXiv:2510.14967), normalised and then summed over later steps.

        A_t = sum_{k >= t} gamma^(k - t) z_k - p,   z = (x - mean) / (std + 1e-6) over the steps of the task group

    with x the column `turn_reward`, or the episode's return on the last step, the deviation's n - 1, and p the step's
    penalty. IGPO's turn reward is the gain in the probability of the true answer; others work too. Family: rewards of
    turns and tokens. Source: code and paper (GuoqingWang1/IGPO).

    No environment of this package gives rewards of turns: a custom environment puts `turn_reward` into info. With
    `joint`, a large outcome dominates small turn rewards.

    Args:
        batch: the steps, with the column `turn_reward`.
        gamma: discount, from 0 to 1.
        joint: compare all steps together; false compares last steps separately.

    Returns float64[N]. Raises ValueError on a gamma outside [0, 1] or a missing column.
    """
    check_shares(gamma=gamma)
    last = is_last(batch)
    values = np.where(last, episode_returns(batch), batch.column("turn_reward", "turn_rewards"))
    sets = batch.group_labels if joint else joint_labels(batch.group_labels, last)
    relative = over_unique_steps(batch, partial(relative_to_group, norm="mean_std_norm", ddof=1), values, sets)
    return relative + gamma * sum_of_later(batch, relative, gamma) - batch.penalty
