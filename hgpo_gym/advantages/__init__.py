"""Credit assignment: `estimate(name, batch, **options)`. It uses NumPy, and imports neither torch nor Gymnasium.

An estimator is a pure function `(StepBatch, *, options) -> advantages float64[N]`. With further outputs it returns
`Advantages`. To add one, write its file in `published`. From another package, call `register_estimator` or use an
entry point of the group `hgpo_gym.estimators`.
"""

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import has_critic, is_over_the_batch, learns_values, needed_by, needs, over_the_batch
from hgpo_gym.advantages.estimators import ESTIMATORS, assign, estimate, needed_with, with_bases
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.similar import cluster_observations

register_estimator = ESTIMATORS.register
"""Add your own estimator: `(name, function)`. Raises ValueError if the name is in use."""

__all__ = [
    "ESTIMATORS",
    "Advantages",
    "StepBatch",
    "assign",
    "cluster_observations",
    "estimate",
    "has_critic",
    "is_over_the_batch",
    "learns_values",
    "needed_by",
    "needed_with",
    "needs",
    "over_the_batch",
    "register_estimator",
    "with_bases",
]
