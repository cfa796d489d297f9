"""What a source of true advantages hands over: a policy at a stage of training, and batches beside the truth."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.analysis.estimator_bias.measure import Truth

RETURNS = "restart_returns"
"""The extra column, float64[N, R], of what R restarts from the state before each step earned."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every source needs to know.

    Attributes:
        history_length, key: of the context keys, see `Memory`.
        gamma, horizon: discount and step limit.
        episodes: of each task.
        groups_a_batch: task groups that an estimator sees at once.
        seed: of everything random.
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
    """Independent groups of one size.

    Attributes:
        batches: the groups, as many together as a training iteration has.
        measured: of each batch, the rows whose true advantage is known.
        truth: of these rows, batch after batch.
    """

    batches: list[StepBatch]
    measured: list[np.ndarray]
    truth: Truth

    def estimates(self, estimator: str, *, restarts: int = 0, **options: object) -> np.ndarray:
        """float64[N]: what an estimator says of the measured rows, given so many restarts as the column `value`.

        Raises ValueError as `estimate` does, which misses the column where there are no restarts.
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
        name: of the stage.
        success: the share of episodes that succeed.
        compare: group size -> groups of that size.
        context_bias: for each level, bias2 of a baseline that is that level's mean alone, in groups without limit;
            empty where it cannot be computed.
    """

    name: str
    success: float
    compare: Callable[[int], BiasComparison]
    context_bias: tuple[float, ...] = ()


def split_rows(group: np.ndarray, groups_a_batch: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """The rows of every batch, for groups that are put into batches by chance."""
    batch = generator.permutation(group.max() + 1)[group] // groups_a_batch
    order = np.argsort(batch, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(batch[order])) + 1)
