"""The estimators by name, and the two ways to call one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needed_by
from hgpo_gym.advantages.result import Advantages, as_advantages
from hgpo_gym.registry import Choice, Registry, one_a_file

_CORE = ("grpo", "gigpo", "hgpo", "hgpo_gae", "nested_bellman")
"""The baselines of this project's comparison, its headline, and its own methods. Every other one is a file in
`published`."""

ESTIMATORS = Registry(
    "estimator",
    {name: f"hgpo_gym.advantages.{name}:{name}" for name in _CORE} | one_a_file("hgpo_gym.advantages.published"),
    arguments=1,
    entry_points="hgpo_gym.estimators",
)

NO_OPTIONS: Mapping[str, Any] = {}
"""The default of `base_options`: a plain dictionary, so that settings can be saved."""


def with_bases(name: str, options: Mapping[str, Any]) -> list[Choice]:
    """Return the estimator, its base by the options `base` and `base_options`, the base's base, and so on.

    Each has all its options, defaults included. Raises ValueError for an unknown estimator.
    """
    defaults = {
        option: parameter.default
        for option, parameter in ESTIMATORS.options(name).items()
        if parameter.default is not parameter.empty
    }
    complete = defaults | dict(options)
    bases = with_bases(complete["base"], complete["base_options"]) if {"base", "base_options"} <= set(complete) else []
    return [Choice(name, complete), *bases]


def needed_with(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that the estimator needs with these options, each with the estimator that needs it.

    That is the estimator itself or one of its bases. Raises ValueError for an unknown estimator.
    """
    needed: dict[str, str] = {}
    for estimator in reversed(with_bases(name, options)):
        needed |= dict.fromkeys(needed_by(ESTIMATORS[estimator.name]), estimator.name)
    return needed


def estimate(name: str, batch: StepBatch, **options: Any) -> np.ndarray:
    """Return the advantage of every step by the estimator `name`, float64[N]. Raises as `assign` does."""
    return assign(name, batch, **options).values


def assign_base(name: str, options: Mapping[str, Any], batch: StepBatch, *, of: str) -> Advantages:
    """Return all outputs of the base estimator of `of`, which then replaces the values.

    Raises:
        ValueError: as `assign` does, or the base gives token advantages, which would override the values.
    """
    base = assign(name, batch, **options)
    if base.tokens is not None:
        raise ValueError(f"Estimator {of!r}: base={name} gives advantages of tokens, which {of} does not change.")
    return base


def assign(name: str, batch: StepBatch, **options: Any) -> Advantages:
    """Return all outputs of the estimator `name`: advantages, further signals, token advantages, critic targets.

    Raises:
        ValueError: an unknown estimator or option, a wrong value of an option, a missing column, or advantages of
            wrong length or not finite.
    """
    options = ESTIMATORS.check_options(name, options)
    estimator = ESTIMATORS[name]
    for column in needed_by(estimator):
        batch.column(column, name)
    return as_advantages(estimator(batch, **options), name, len(batch))
