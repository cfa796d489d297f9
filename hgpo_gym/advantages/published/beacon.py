"""Returns to the next milestone."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import (
    check_shares,
    episode_advantage,
    joint_labels,
    later_in_sequence,
    over_unique_steps,
    relative_to_group,
    sum_of_later,
)


@needs("milestone")
def beacon(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    w_group: float = 1.0,
    w_step: float = 1.0,
    milestone_reward: float = 10.0,
    norm: str = "mean_norm",
    episode_statistics: str = "steps",
) -> np.ndarray:
    """BEACON (arXiv:2605.06078; MiGPO in its code): the discounted time to the next milestone, plus GRPO's term.

        x = milestone_reward * gamma^(steps to the milestone), 0 where none follows
        A = w_group A_episode + w_step rel(x - p),   rel(x) = x - mean over the steps of the task group with as many
        milestones behind them

    with p the step's penalty; `norm=mean_std_norm` divides by the deviation (n - 1) + 1e-6. Steps are compared with
    those of the task that head for the same milestone. Without milestones the step term has only penalties. Milestones
    reveal part of the solution to the training. Family: novelty, subgoals. Source: code (ZJU-REAL/BEACON).

    Avoid it where milestones can be reached in another order: other ways are then blamed.

    Args:
        batch: the steps, with the column `milestone`.
        gamma: discount, from 0 to 1.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term.
        milestone_reward: the value of the step that reaches a milestone.
        norm: of both terms, `mean_std_norm`, or `mean_norm` without the division.
        episode_statistics: of the episode's term, as in GRPO.

    Returns float64[N]. Raises ValueError on an unknown name, a gamma outside [0, 1] or a missing column.
    """
    check_shares(gamma=gamma)
    milestone = batch.column("milestone", "beacon").astype(np.float64)
    milestones_left = sum_of_later(batch, milestone, 1.0) + milestone
    milestones_done = np.bincount(batch.trajectory_labels, weights=milestone)[batch.trajectory_labels] - milestones_left
    segment = joint_labels(batch.trajectory_labels, milestones_done)
    # Each segment's first step, so that places in a segment count from 0.
    begin = np.full(segment.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begin, segment, batch.step)
    discounted = milestone + gamma * later_in_sequence(milestone, segment, batch.step - begin[segment], gamma)
    relative = partial(relative_to_group, norm=norm, ddof=1)
    in_segment = over_unique_steps(
        batch,
        relative,
        milestone_reward * discounted - batch.penalty,
        joint_labels(batch.group_labels, milestones_done),
    )
    return w_group * episode_advantage(batch, norm, episode_statistics) + w_step * in_segment
