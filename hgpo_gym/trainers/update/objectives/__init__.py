"""Objectives: a token's loss, given its probabilities and its advantage.

An objective is a pure function `(Tokens, *, options) -> Surrogate`, written like its formula. `ppo_clip` is the
default. To add one, write its file in `published`. From elsewhere, call `register_objective` or name it as an entry
point of the group `hgpo_gym.objectives`. `objective=<name>` then chooses it, and `objective.<option>` are its keyword
arguments.

Reading this package needs no torch. An objective is imported at its first use.
"""

from hgpo_gym.registry import Registry, one_a_file
from hgpo_gym.trainers.update.objectives.marks import Prepared, needs_old, prefers, prepared_by
from hgpo_gym.trainers.update.objectives.terms import (
    by_sign,
    check_clip,
    clip_ratio,
    distance,
    log_ratio,
    position,
    response_mean,
    response_sum,
)
from hgpo_gym.trainers.update.objectives.tokens import Surrogate, Tokens

DEFAULT_AGGREGATION = "token_mean"

OBJECTIVES = Registry(
    "objective",
    {"ppo_clip": f"{__name__}.ppo_clip:ppo_clip", **one_a_file(f"{__name__}.published")},
    arguments=1,
    entry_points="hgpo_gym.objectives",
)
"""All objectives by name: `OBJECTIVES["ppo_clip"](tokens, clip_high=0.2)` returns its `Surrogate`."""
register_objective = OBJECTIVES.register
"""Add a custom objective: `(name, function)`. Raises ValueError if the name is in use."""


def preferred_aggregation(name: str) -> str:
    """Return the aggregation that `trainer.loss_aggregation=null` means for this objective. Raises ValueError if
    there is no such objective."""
    return getattr(OBJECTIVES.find(name), "aggregation", DEFAULT_AGGREGATION)


__all__ = [
    "OBJECTIVES",
    "Prepared",
    "Surrogate",
    "Tokens",
    "by_sign",
    "check_clip",
    "clip_ratio",
    "distance",
    "log_ratio",
    "needs_old",
    "position",
    "preferred_aggregation",
    "prefers",
    "prepared_by",
    "register_objective",
    "response_mean",
    "response_sum",
]
