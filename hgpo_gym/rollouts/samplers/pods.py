"""PODS: of each group, the episodes that differ most are learned from."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import episode_returns, snap_equal
from hgpo_gym.rollouts.samplers.base import Sampler

SAME = 1e-9
"""Variances that differ by no more are equal."""


class Pods(Sampler):
    """Learns from the `keep` episodes of each group whose returns have the largest variance: some of the best and the
    rest of the worst. Advantages are taken among those that are kept.

    Policy optimization with down-sampling (arXiv 2504.13818), from the paper and re-implementations by others. It saves
    updates and no episodes, and changes the weight of rare wins.

    Args:
        keep: episodes of each group; as many as there are change nothing.

    Raises:
        ValueError: keep below 1.
    """

    def __init__(self, task_ids: Sequence[str], seed: int, *, keep: int = 4):
        super().__init__(task_ids, seed)
        if keep < 1:
            raise ValueError(f"sampler.keep={keep}: keep 1 episode of each group at least.")
        self._keep = keep

    def episodes(self, batch: StepBatch, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002 - of Sampler
        groups = batch.group_labels[batch.first_rows]
        returns = snap_equal(episode_returns(batch)[batch.first_rows], groups)
        kept = np.zeros(len(returns), dtype=np.bool_)
        for group in range(groups.max(initial=-1) + 1):
            own = np.flatnonzero(groups == group)
            kept[own[most_different(returns[own], self._keep)]] = True
        return kept


def most_different(returns: np.ndarray, keep: int) -> np.ndarray:
    """int64[keep], in order: the episodes whose returns have the largest variance; of equal variances, those with the
    most of the best. Of equal returns the earliest are the best ones, the latest the worst.

    Args:
        returns: float64[n], of a group's episodes.
        keep: how many; n or more are all.
    """
    if keep >= len(returns):
        return np.arange(len(returns))
    order = np.argsort(-returns, kind="stable")
    choices = [np.concatenate([order[:best], order[len(order) - keep + best :]]) for best in range(keep, -1, -1)]
    variances = np.array([returns[choice].var() for choice in choices])
    return np.sort(choices[int(np.argmax(variances >= variances.max() - SAME))])
