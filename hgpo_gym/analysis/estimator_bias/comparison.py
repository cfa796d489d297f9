"""The results of a source of true advantages: a policy at a stage of training, and batches with their truth."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.creditbench.measure import Truth

RETURNS = "restart_returns"
"""The extra column, float64[N, R], of what R restarts from the state before each step earned."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that every source of true advantages needs.

    Attributes:
        history_length, key: how context keys are made, see `Memory`.
        gamma, horizon: discount and step limit.
        episodes: the number of episodes of each task.
        groups_a_batch: the number of task groups that an estimator sees at once.
        seed: the seed of all random draws.
    """

    history_length: int
    key: str
    gamma: float
    horizon: int
    episodes: int
    groups_a_batch: int
    seed: int


@dataclass(frozen=True)
class BiasComparison:
    """Independent groups of one size, with the true advantages of some of their steps.

    Attributes:
        batches: the groups; a batch has as many as a training iteration.
        measured: for each batch, the rows whose true advantage is known.
        truth: the truth of these rows, in the order of the batches.
    """

    batches: list[StepBatch]
    measured: list[np.ndarray]
    truth: Truth

    def estimates(self, estimator: str, *, restarts: int = 0, **options: object) -> np.ndarray:
        """Return the estimates of the measured rows, float64[N]. The mean of `restarts` restarts is the column `value`.

        Raises ValueError as `estimate` does. Without restarts an estimator that reads `value` misses that column.
        """
        return np.concatenate(
            [
                estimate(estimator, _with_value(batch, restarts), **options)[rows]
                for batch, rows in zip(self.batches, self.measured, strict=True)
            ]
        )


def _with_value(batch: StepBatch, restarts: int) -> StepBatch:
    if not restarts or RETURNS not in batch.extras:
        return batch
    return replace(batch, extras={**batch.extras, "value": batch.extras[RETURNS][:, :restarts].mean(axis=1)})


@dataclass(frozen=True)
class Stage:
    """A policy at a stage of training.

    Attributes:
        name: the name of the stage.
        success: the share of episodes that succeed.
        compare: group size -> groups of that size.
        context_bias: for each level, bias2 if that level's mean is the baseline and groups are infinitely large;
            empty if it cannot be computed.
    """

    name: str
    success: float
    compare: Callable[[int], BiasComparison]
    context_bias: tuple[float, ...] = ()


def split_rows(group: np.ndarray, groups_a_batch: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the rows of each batch, after groups are put into batches at random."""
    batch = generator.permutation(group.max() + 1)[group] // groups_a_batch
    # A stable sort keeps the steps of an episode in order.
    order = np.argsort(batch, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(batch[order])) + 1)
