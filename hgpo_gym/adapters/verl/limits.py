"""Parts of this package that cannot run inside verl: each is refused by name, with the reason."""

from collections.abc import Mapping
from typing import Any

from hgpo_gym.advantages import ESTIMATORS, needed_with
from hgpo_gym.advantages.columns import COLUMNS, is_over_the_batch
from hgpo_gym.rollouts.recording import ENTROPY, OF_A_STEP, REWARD_VECTOR
from hgpo_gym.trainers.update.objectives import OBJECTIVES

SUPPLIED = ("action", "success", "final_keys", "agent", "truncated", "texts", ENTROPY, REWARD_VECTOR)
"""Columns that the agent loop or the trainer always supplies, or as the settings ask."""

COLUMN_OF = {"clip_cov": "selected", "hapo": "entropy_scale", "hispo": "behaviour", "kl_cov": "selected"}
"""Objectives that need one column of tokens beyond verl's own, and the column. The trainer computes it before the
update, and verl passes it on in the field `rollout_is_weights`."""


def check_estimator(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that an estimator needs, by the estimator that needs each.

    Args:
        name: of the estimator.
        options: of the estimator.

    Raises:
        ValueError: an unknown estimator, or one that needs a column that verl has no source for.
    """
    needed = needed_with(name, ESTIMATORS.check_options(name, options))
    for column, by in needed.items():
        if column in COLUMNS and column not in (*SUPPLIED, *OF_A_STEP):
            raise ValueError(
                f"algo={by} needs the column {column!r} ({COLUMNS[column].about}), which no part of verl makes: train "
                f"it with hgpo-gym train, or choose another algo."
            )
    return needed


def check_mini_batches(name: str) -> None:
    """Raise ValueError for an estimator that needs the whole batch, where advantages are computed in parts of it."""
    if is_over_the_batch(ESTIMATORS.find(name)):
        raise ValueError(
            f"algo={name} takes statistics over all task groups of an iteration, and "
            "trainer.v1.separate_async.parameter_sync_step above 1 computes advantages of mini-batches: set it to 1, "
            "or choose another algo."
        )


def check_objective(name: str) -> None:
    """Raise ValueError for an unknown objective, or one that needs more than a policy loss of verl gets."""
    objective = OBJECTIVES.find(name)
    needs_more = getattr(objective, "preparation", None) is not None or getattr(objective, "needs_old", False)
    if needs_more and name not in COLUMN_OF:
        raise ValueError(
            f"objective={name} needs quantities of tokens that verl does not pass to a policy loss: train it with "
            "hgpo-gym train, or choose another objective."
        )
