"""Credit assignment: `estimate(name, batch, **options)`. Needs NumPy alone.

An estimator is a pure function `(StepBatch, *, options) -> advantages float64[N]`, or `Advantages` where it has more to
say. To add one: write its file and add its line to `ESTIMATORS`, or, from elsewhere, call `register_estimator` or name
it as an entry point of the group `hgpo_gym.estimators`.
"""

from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needed_by, needs
from hgpo_gym.advantages.gigpo import gigpo
from hgpo_gym.advantages.grpo import grpo
from hgpo_gym.advantages.hgpo import hgpo
from hgpo_gym.advantages.hgpo_gae import hgpo_gae
from hgpo_gym.advantages.result import Advantages, as_advantages
from hgpo_gym.registry import Registry

ESTIMATORS = Registry(
    "estimator",
    {
        "grpo": grpo,
        "gigpo": gigpo,
        "hgpo": hgpo,
        "hgpo_gae": hgpo_gae,
    },
    arguments=1,
    entry_points="hgpo_gym.estimators",
)
register_estimator = ESTIMATORS.register
"""Add an estimator of your own: `(name, function)`. Raises ValueError if the name is taken."""


def estimate(name: str, batch: StepBatch, **options: Any) -> np.ndarray:
    """The advantage of every step by the estimator `name`, float64[N]: the values of `assign`. Raises as it does."""
    return assign(name, batch, **options).values


def assign(name: str, batch: StepBatch, **options: Any) -> Advantages:
    """All that the estimator `name` has to say about the batch: advantages, further signals, advantages of tokens.

    Raises:
        ValueError: an unknown estimator, an option that it does not have, a value that it refuses, a column that it
            needs and the batch lacks, or advantages that cannot be (of other length, not finite).
    """
    ESTIMATORS.check_options(name, options)
    estimator = ESTIMATORS[name]
    for column in needed_by(estimator):
        batch.column(column, name)
    return as_advantages(estimator(batch, **options), name, len(batch))


__all__ = [
    "ESTIMATORS",
    "Advantages",
    "StepBatch",
    "assign",
    "estimate",
    "needed_by",
    "needs",
    "register_estimator",
]
