"""Shaping: from what was played to the rewards that credit assignment sees. Chosen by the config group `shaping`.

A shaping is a function `(Rollout, *, options) -> StepBatch` in which reward and penalty alone may differ from the
rollout's batch; how episodes went, in reports and evaluations, stays the environment's. `advantages.columns.needs`
marks the columns that a run has to record for it. To add one: write its file and add its line to `SHAPERS`, or, from
elsewhere, call `register_shaping` or name it as an entry point of the group `hgpo_gym.shapings`.
"""

from dataclasses import fields

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.kinds import ColumnError
from hgpo_gym.registry import Choice, Registry
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.shaping.cost import cost
from hgpo_gym.rollouts.shaping.milestones import milestones
from hgpo_gym.rollouts.shaping.none import none
from hgpo_gym.rollouts.shaping.overlong import overlong

SHAPERS = Registry(
    "shaping",
    {
        "none": none,
        "overlong": overlong,
        "cost": cost,
        "milestones": milestones,
    },
    arguments=1,
    entry_points="hgpo_gym.shapings",
)
register_shaping = SHAPERS.register
"""Add a shaping of your own: `(name, function)`. Raises ValueError if the name is taken."""

MAY_DIFFER = ("reward", "penalty")


def shape(choice: Choice, rollout: Rollout) -> StepBatch:
    """The rollout's batch with the rewards and penalties of the shaping that was chosen.

    Raises:
        ValueError: an unknown name, option or value, or a shaping that changes something else.
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
    """Every array of the batch, by name."""
    own = {field.name: getattr(batch, field.name) for field in fields(batch) if field.name != "extras"}
    return {name: values for name, values in own.items() if values is not None} | dict(batch.extras)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" and other.dtype.kind == "f")


__all__ = ["SHAPERS", "register_shaping", "shape"]
