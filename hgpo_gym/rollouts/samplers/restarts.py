"""Restarts: estimate the value of steps by continuations from them."""

from collections.abc import Sequence
from typing import Any

from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.rollouts.restarts import check_restarts, collect_with_restarts
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.samplers.base import Sampler


class Restarts(Sampler):
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

    def __init__(self, task_ids: Sequence[str], seed: int, *, gamma: float, restarts: int = 9, share: float = 1.0):
        super().__init__(task_ids, seed)
        check_restarts(restarts, share, gamma)
        self._options: dict[str, Any] = {"restarts": restarts, "share": share, "gamma": gamma}

    def collect(
        self,
        env: ContextWrapper,
        policy: Policy,
        sampling: Sampling,
        *,
        task_ids: Sequence[str],
        seeds: Sequence[tuple[int, ...]],
        **options: Any,
    ) -> Rollout:
        """Collect as `collect_with_restarts` does."""
        return collect_with_restarts(env, policy, sampling, task_ids=task_ids, seeds=seeds, **self._options, **options)
