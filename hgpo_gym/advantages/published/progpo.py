"""Credit for new observations in groups where every episode failed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import over_the_batch
from hgpo_gym.advantages.estimators import NO_OPTIONS, assign_base
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.statistics import (
    EPSILON,
    episode_returns,
    joint_labels,
    moments,
    snap_equal,
    success,
)

_NO_RETURN = 1e-3
_NO_SPREAD = 1e-4


@over_the_batch
def progpo(
    batch: StepBatch,
    *,
    base: str = "grpo",
    base_options: Mapping[str, Any] = NO_OPTIONS,
    weight: float = 0.3,
) -> Advantages:
    """ProGPO (arXiv:2607.22724): compare episodes by their new observations in groups that failed with returns of 0.

    All other groups keep the advantages of the base estimator.

        P = (steps that led to an observation new to the episode) / T
        A = weight * q * (P - mean) / (std + 1e-6) - p   over the episodes of such a group

    with the deviation's n (a deviation of 1e-4 or less gives 0), q the share of such groups in the batch, and p the
    step's penalty. It rewards novelty, not progress. Observations are compared without history (level 0). Family:
    novelty, subgoals. Source: third party (two re-implementations that agree).

    Avoid it where observations change for other reasons, such as a counter: everything is new then.

    Args:
        batch: the steps; `final_keys`, if recorded, counts the final observation too.
        base: the estimator of all other groups.
        base_options: options of the base, by name.
        weight: weight of the novelty in the advantage.

    Returns the values float64[N], and the base's other outputs. Raises ValueError on an unknown base, a base with token
    advantages, or an error of the base.
    """
    credit = assign_base(base, base_options, batch, of="progpo")
    if not len(batch):
        return credit
    group = batch.group_labels
    has_return = success(batch) | (np.abs(episode_returns(batch)) > _NO_RETURN)
    failed_groups = np.bincount(group, weights=has_return) == 0
    first = batch.first_rows
    share = snap_equal(_novelty(batch), group[first])
    mean, std = moments(share, group[first], ddof=0)
    relative = np.where(
        std[group[first]] <= _NO_SPREAD, 0.0, (share - mean[group[first]]) / (std[group[first]] + EPSILON)
    )
    novelty = weight * failed_groups.mean() * relative[batch.trajectory_labels] - batch.penalty
    return credit._replace(values=np.where(failed_groups[group], novelty, credit.values))


def _novelty(batch: StepBatch) -> np.ndarray:
    """Return the share of steps that led to an observation new to the episode, float64[episodes]."""
    episode, seen = batch.trajectory_labels, batch.context_keys[:, 0]
    if batch.final_keys is not None:
        finals = batch.first_rows[batch.final_keys[batch.first_rows, 0] != 0]
        episode = np.append(episode, episode[finals])
        seen = np.append(seen, batch.final_keys[finals, 0])
    _, first_visits = np.unique(joint_labels(episode, seen), return_index=True)
    return (np.bincount(episode[first_visits]) - 1) / np.bincount(batch.trajectory_labels)
