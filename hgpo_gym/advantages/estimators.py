"""The estimators by name, and the two ways to call one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needed_by
from hgpo_gym.advantages.result import Advantages, as_advantages
from hgpo_gym.registry import Choice, Registry

_NAMES = (
    # Published with this project's headline, and its own.
    *("grpo", "gigpo", "hgpo", "hgpo_gae", "nested_bellman"),
    # The episode against others of its task.
    *("rloo", "dr_grpo", "reinforce_pp", "reinforce_pp_baseline", "pass_at_k", "gbpo"),
    # Visits of a state, and actions there.
    *("rtmc", "salt"),
    # Generalized advantages over tables and critics.
    *("gagpo", "gae", "hiper_hae"),
    # The task group as one process or graph.
    *("crbc", "graft", "graphgpo", "g2po"),
    # Novelty and milestones.
    *("progpo", "beacon"),
    # Several rewards, several roles.
    *("dvao", "gdpo", "dr_mas"),
    # One more number a turn.
    *("turn_rewards", "rlvmr", "empg"),
    # What the sampler has to play for.
    *("vineppo", "siblings", "tree_grpo", "best_plan"),
)
ESTIMATORS = Registry(
    "estimator",
    {name: f"hgpo_gym.advantages.{name}:{name}" for name in _NAMES},
    arguments=1,
    entry_points="hgpo_gym.estimators",
)

NO_OPTIONS: Mapping[str, Any] = {}
"""The default of options that hold another estimator's: a plain dictionary, so that settings can be written down."""


def with_bases(name: str, options: Mapping[str, Any]) -> list[Choice]:
    """The estimator, then the one that it builds on by its options `base` and `base_options`, and so on; each with all
    its options, also those that are left at their defaults. Raises ValueError for an unknown estimator."""
    defaults = {
        option: parameter.default
        for option, parameter in ESTIMATORS.options(name).items()
        if parameter.default is not parameter.empty
    }
    complete = defaults | dict(options)
    bases = with_bases(complete["base"], complete["base_options"]) if {"base", "base_options"} <= set(complete) else []
    return [Choice(name, complete), *bases]


def needed_with(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The columns that the estimator needs with these options, and which estimator asks for each: itself, or one that
    it builds on. Raises ValueError for an unknown estimator."""
    needed: dict[str, str] = {}
    for estimator in reversed(with_bases(name, options)):
        needed |= dict.fromkeys(needed_by(ESTIMATORS[estimator.name]), estimator.name)
    return needed


def estimate(name: str, batch: StepBatch, **options: Any) -> np.ndarray:
    """The advantage of every step by the estimator `name`, float64[N]: the values of `assign`. Raises as it does."""
    return assign(name, batch, **options).values


def assign_base(name: str, options: Mapping[str, Any], batch: StepBatch, *, of: str) -> Advantages:
    """All that the estimator says which `of` builds on, whose values `of` replaces by its own.

    Raises:
        ValueError: as `assign`, or it gives advantages of tokens, which stand in place of values.
    """
    base = assign(name, batch, **options)
    if base.tokens is not None:
        raise ValueError(f"Estimator {of!r}: base={name} gives advantages of tokens, which {of} does not change.")
    return base


def assign(name: str, batch: StepBatch, **options: Any) -> Advantages:
    """All that the estimator `name` has to say about the batch: advantages, further signals, advantages of tokens.

    Raises:
        ValueError: an unknown estimator, an option that it does not have, a value that it refuses, a column that it
            needs and the batch lacks, or advantages that cannot be (of other length, not finite).
    """
    options = ESTIMATORS.check_options(name, options)
    estimator = ESTIMATORS[name]
    for column in needed_by(estimator):
        batch.column(column, name)
    return as_advantages(estimator(batch, **options), name, len(batch))
