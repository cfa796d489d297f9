"""Restarts: estimate the value of steps by continuations from them."""

from hgpo_gym.registry import follows
from hgpo_gym.rollouts.restarts import check_restarts, collect_with_restarts
from hgpo_gym.rollouts.samplers.base import Collector


@follows(gamma="oc.select:algo.gamma,${oc.select:algo.base_options.gamma,1.0}")
class Restarts(Collector):
    """Play continuations from the start of steps, and record their mean return as the column `value`.

    These are VinePPO's rollouts (arXiv 2410.01679; code: McGill-NLP/VinePPO), see `hgpo_gym.rollouts.restarts`. The
    episodes are those of `in_order`. Continuations count as played.

    Args:
        gamma: discount of the continuations' returns; use the estimator's.
        restarts: continuations of each step; steps of a task group with equal histories share them.
        share: the share of histories with continuations; first steps always have them.

    Raises:
        ValueError: no restarts, a share or discount outside [0, 1].
    """

    records = ("value",)

    def __init__(self, *, gamma: float, restarts: int = 9, share: float = 1.0):
        check_restarts(restarts, share, gamma)
        super().__init__(collect_with_restarts, restarts=restarts, share=share, gamma=gamma)
