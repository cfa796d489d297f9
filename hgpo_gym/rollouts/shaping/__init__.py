"""Reward shaping: the rewards that credit assignment sees. Chosen by the config group `shaping`.

A shaping is a function `(Rollout, *, options) -> StepBatch`. Its batch may differ from the rollout's only in reward and
penalty. Reports and evaluations keep the environment's returns. `advantages.columns.needs` marks the columns that a run
has to record for it. To add one, write its file. From another package, call `register_shaping` or use an entry point of
the group `hgpo_gym.shapings`.
"""

from dataclasses import fields

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.kinds import ColumnError
from hgpo_gym.registry import Choice, Registry, one_a_file
from hgpo_gym.rollouts.rollout import Rollout

SHAPERS = Registry("shaping", one_a_file(__name__), arguments=1, entry_points="hgpo_gym.shapings")
register_shaping = SHAPERS.register
"""Add your own shaping: `(name, function)`. Raises ValueError if the name is in use."""

MAY_DIFFER = ("reward", "penalty")


def shape(choice: Choice, rollout: Rollout) -> StepBatch:
    """Return the rollout's batch with the rewards and penalties of the chosen shaping.

    Raises:
        ValueError: an unknown name, option or value, or a shaping that changes another column.
    """
    try:
        batch = SHAPERS.bind(choice)(rollout)
    except ColumnError as error:
        raise ValueError(f"shaping={choice.name}: {error}") from error
    before, after = _columns(rollout.batch), _columns(batch)
    if different := before.keys() ^ after.keys():
        raise ValueError(f"shaping={choice.name} adds or drops the column {min(different)!r}: {_REMEDY}")
    for name, values in after.items():
        if name not in MAY_DIFFER and values is not before[name] and not _equal(values, before[name]):
            raise ValueError(f"shaping={choice.name} changes the column {name!r}: {_REMEDY}")
    return batch


_REMEDY = "only reward and penalty are a shaping's to change, by dataclasses.replace(rollout.batch, reward=...)."


def _columns(batch: StepBatch) -> dict[str, np.ndarray]:
    """Return every array of the batch, by name."""
    arrays = {
        field.name: getattr(batch, field.name) for field in fields(batch) if field.name not in ("extras", "texts")
    }
    return {name: values for name, values in arrays.items() if values is not None} | dict(batch.extras)


def _equal(left: np.ndarray, right: np.ndarray) -> bool:
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f" and right.dtype.kind == "f")


__all__ = ["SHAPERS", "register_shaping", "shape"]
