"""Rewards for tags of steps."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import episode_advantage, joint_labels, over_unique_steps, relative_to_group


@needs("tag", "tag_reward")
def rlvmr(
    batch: StepBatch,
    *,
    w_group: float = 1.0,
    w_step: float = 1.0,
    norm: str = "mean_std_norm",
    episode_statistics: str = "steps",
) -> np.ndarray:
    """RLVMR (arXiv:2507.22844): rewards for tagged steps (planning, explore, reflection, monitor), plus GRPO's term.

        A = w_group A_episode + w_step (tag_reward - mean) / (std + 1e-6)

    over the steps of the task group with the same tag, and with the deviation's n - 1. Steps without a tag are one more
    set. A step with a unique tag has the reward itself (as published). Family: rewards of turns and tokens. Source:
    code (public copies of its core_rlvmr.py, where `mean_norm` is the default). The published sizes of the rewards are
    not confirmed.

    No environment or prompt of this package gives tags: a custom environment puts `tag` and `tag_reward` into info.

    Args:
        batch: the steps, with the columns `tag` and `tag_reward`.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term.
        norm: of both terms; `mean_norm` leaves out the divisions.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.

    Returns float64[N]. Raises ValueError on an unknown name or a missing column.
    """
    reward = batch.column("tag_reward", "rlvmr").astype(np.float64)
    sets = joint_labels(batch.group_labels, batch.column("tag", "rlvmr"))
    relative = over_unique_steps(batch, partial(relative_to_group, norm=norm, ddof=1), reward, sets)
    step_term = np.where(batch.visits(sets) == 1, reward, relative)
    return w_group * episode_advantage(batch, norm, episode_statistics) + w_step * step_term
