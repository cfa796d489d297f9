"""Credit assignment: `estimate(name, batch, **options)`. Computes with NumPy, and loads neither torch nor
Gymnasium.

An estimator is a pure function `(StepBatch, *, options) -> advantages float64[N]`, or `Advantages` where it has more to
say. To add one: write its file and add its name to `estimators.py`, or, from elsewhere, call `register_estimator` or
name it as an entry point of the group `hgpo_gym.estimators`.
"""

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import is_over_the_batch, needed_by, needs, over_the_batch
from hgpo_gym.advantages.estimators import ESTIMATORS, assign, estimate, needed_with, with_bases
from hgpo_gym.advantages.result import Advantages

register_estimator = ESTIMATORS.register
"""Add an estimator of your own: `(name, function)`. Raises ValueError if the name is taken."""

__all__ = [
    "ESTIMATORS",
    "Advantages",
    "StepBatch",
    "assign",
    "estimate",
    "is_over_the_batch",
    "needed_by",
    "needed_with",
    "needs",
    "over_the_batch",
    "register_estimator",
    "with_bases",
]
