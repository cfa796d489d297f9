"""A curriculum by pools: prefer tasks of medium difficulty."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.rollouts.samplers.base import TaskDraw
from hgpo_gym.rollouts.samplers.curricula._weighted import WeightedTasks

Pool = tuple[float, float]
"""Threshold and weight."""
UNSEEN = 1.0
"""The weight of a task that has not been played."""


class Pools(WeightedTasks):
    """Weight each task by its pool of difficulty, as prime-rl does (code).

    A task is in the first pool whose threshold is at least the success of its latest group. The last pool takes the
    remaining tasks.

    Args:
        pools: pairs of threshold and weight.

    Raises:
        ValueError: no pools, or a negative weight.
    """

    def __init__(self, *, pools: Sequence[Pool] = ((0.25, 0.2), (0.75, 1.0), (1.0, 0.2))):
        if not pools or any(weight < 0 for _, weight in pools):
            raise ValueError(f"sampler.pools={pools}: give pairs of threshold and weight, 0 or more.")
        self._pools = pools

    def weights(self, draw: TaskDraw) -> np.ndarray:
        latest = {group.task_id: group.wins / group.episodes for groups in draw.outcomes for group in groups}
        return pool_weights([latest.get(task_id) for task_id in draw.task_ids], self._pools)


def pool_weights(successes: Sequence[float | None], pools: Sequence[Pool]) -> np.ndarray:
    """Return weights float64[tasks] for these success rates; None is a task that has not been played."""
    in_order = sorted(pools)
    thresholds, weights = np.array([pool[0] for pool in in_order]), np.array([pool[1] for pool in in_order])

    def weight(success: float | None) -> float:
        if success is None:
            return UNSEEN
        return float(weights[min(int(np.searchsorted(thresholds, success)), len(weights) - 1)])

    return np.array([weight(success) for success in successes], dtype=np.float64)
