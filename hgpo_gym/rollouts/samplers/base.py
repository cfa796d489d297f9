"""Sampler: the tasks to play, the groups to replace, and the episodes and steps to learn from."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.rollout import Rollout

MOST_ROUNDS = 10
"""The most rounds of an iteration, where environments fail and groups are lost."""


class GroupOutcome(NamedTuple):
    """The result of one task group."""

    task_id: str
    mean_return: float
    wins: int
    episodes: int


Outcomes = Sequence[Sequence[GroupOutcome]]
"""For each finished iteration, the groups played in all its rounds."""


class Sampler:
    """The selection of training data. A hook that is not overridden changes nothing; this class itself is `in_order`.

    A sampler has no random state. It is a function of its options, the seed, the iteration and the outcomes of earlier
    iterations. A resumed run therefore continues with the same numbers.

    Args:
        task_ids: every task of the training split; empty while a run checks its settings.
        seed: of the run.
    """

    measure: str | None = None
    """The measure of every task that `begin` needs before training, a name in `MEASURES`."""

    episodes_before: int = 0
    """Episodes of each task that the policy plays before training, if `measure` is its win rate."""

    records: tuple[str, ...] = ()
    """Columns that its rollouts have beyond those of all rollouts; estimators may need them."""

    described: str = "the sampler"
    """Its name and options, for messages."""

    def __init__(self, task_ids: Sequence[str], seed: int):
        self.task_ids, self.seed = task_ids, seed

    def check(self, group_size: int, history_length: int) -> None:
        """Raise ValueError if it does not support this group size or this history length of the context keys."""

    def begin(self, measured: Mapping[str, float | None]) -> None:
        """Take in the measure of every task, by task id; called before the first `tasks` if `measure` is set."""

    def tasks(self, iteration: int, count: int, outcomes: Outcomes) -> list[str]:  # noqa: ARG002 - for subclasses
        """Return the tasks of `count` groups for the first round of an iteration; by default `tasks_in_order`."""
        return tasks_in_order(self.task_ids, self.seed, iteration, count)

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
        """Play groups; by default as `hgpo_gym.rollouts.collect.collect` does."""
        return collect(env, policy, sampling, task_ids=task_ids, seeds=seeds, **options)

    def most_rounds(self, iteration: int) -> int:  # noqa: ARG002 - for subclasses
        """Return the most rounds of this iteration; each round replaces uninformative groups."""
        return MOST_ROUNDS

    def redraw(
        self,
        iteration: int,
        round: int,
        count: int,
        outcomes: Outcomes,  # noqa: ARG002 - for subclasses
    ) -> list[str]:
        """Draw the tasks of `count` groups of a later round, uniformly; without repetition if there are enough."""
        generator = np.random.default_rng((RandomStream.TASKS, self.seed, iteration, round))
        return draw_tasks(generator, self.task_ids, np.ones(len(self.task_ids)), count)

    def informative(self, batch: StepBatch, advantages: np.ndarray) -> np.ndarray:  # noqa: ARG002 - for subclasses
        """Return bool[groups], in the order of `batch.group_labels`: true keeps a group, false replaces it."""
        return np.ones(batch.group_labels.max(initial=-1) + 1, dtype=np.bool_)

    def episodes(self, batch: StepBatch, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002 - for subclasses
        """Return bool[episodes], in the order of `batch.trajectory_labels`: the episodes for credit assignment."""
        return np.ones(len(batch.first_rows), dtype=np.bool_)

    def steps(
        self,
        batch: StepBatch,
        advantages: np.ndarray,  # noqa: ARG002 - for subclasses
        progress: float,  # noqa: ARG002 - for subclasses
        generator: np.random.Generator,  # noqa: ARG002 - for subclasses
    ) -> np.ndarray:
        """Return bool[N]: the steps of the update. `progress` is the finished share of the training."""
        return np.ones(len(batch), dtype=np.bool_)


def spread(count: int, size: int | None) -> list[int]:
    """Return `size` numbers below `count`, evenly spread; None or a larger size returns all."""
    if size is None or size >= count:
        return list(range(count))
    return [index * count // size for index in range(size)]


def tasks_in_order(task_ids: Sequence[str], seed: int, iteration: int, count: int) -> list[str]:
    """Return the `count` tasks of an iteration: shuffled epochs over all tasks, continued from iteration to iteration.

    The tasks depend only on the seed and the iteration, so every algorithm sees the same ones.
    """
    orders: dict[int, np.ndarray] = {}
    tasks = []
    for position in range(iteration * count, (iteration + 1) * count):
        epoch, index = divmod(position, len(task_ids))
        if epoch not in orders:
            orders[epoch] = np.random.default_rng((RandomStream.TASKS, seed, epoch)).permutation(len(task_ids))
        tasks.append(task_ids[orders[epoch][index]])
    return tasks


def draw_tasks(generator: np.random.Generator, task_ids: Sequence[str], weights: np.ndarray, count: int) -> list[str]:
    """Draw tasks by weight, without repetition if there are enough of them.

    If too few tasks have a weight above 0, the rest is drawn uniformly from the others.

    Args:
        weights: float64[tasks], 0 or more.
    """
    drawn: list[str] = []
    weighted, rest = np.flatnonzero(weights > 0), np.flatnonzero(weights <= 0)
    while len(drawn) < count:
        remaining = min(count - len(drawn), len(task_ids))
        num_weighted = min(remaining, len(weighted))
        if num_weighted:
            share = weights[weighted] / weights[weighted].sum()
            drawn += [task_ids[index] for index in generator.choice(weighted, num_weighted, replace=False, p=share)]
        if remaining > num_weighted:
            drawn += [task_ids[index] for index in generator.choice(rest, remaining - num_weighted, replace=False)]
    return drawn
