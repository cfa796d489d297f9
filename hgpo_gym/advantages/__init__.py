"""Credit assignment: `estimate(name, batch, **options)`. Needs NumPy alone.

An estimator is a pure function `(StepBatch, *, options) -> advantages float64[N]`. To add one: write its file and add
its line to `ESTIMATORS`, or, from elsewhere, call `register_estimator` or name it as an entry point of the group
`hgpo_gym.estimators`.
"""

from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.gigpo import gigpo
from hgpo_gym.advantages.grpo import grpo
from hgpo_gym.advantages.hgpo import hgpo
from hgpo_gym.advantages.hgpo_gae import hgpo_gae
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
    """The advantage of every step by the estimator `name`, float64[N].

    Raises:
        ValueError: an unknown estimator, an option that it does not have, or a value that it refuses.
    """
    ESTIMATORS.check_options(name, options)
    return ESTIMATORS[name](batch, **options)


__all__ = ["ESTIMATORS", "StepBatch", "estimate", "register_estimator"]
