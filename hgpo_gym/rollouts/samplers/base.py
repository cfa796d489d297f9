"""Sampler: which tasks are played and how, which groups anew, which episodes and which steps are learned from."""

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
"""Of an iteration, where groups are lost to environments that fail."""


class GroupOutcome(NamedTuple):
    """How the episodes of one task group went."""

    task_id: str
    mean_return: float
    wins: int
    episodes: int


Outcomes = Sequence[Sequence[GroupOutcome]]
"""For each finished iteration, the groups that were played in it, those of all rounds."""


class Sampler:
    """What is learned from. A hook that is not overridden changes nothing; this class by itself is `in_order`.

    A sampler has no random state: what it does is a function of its options, the seed, the iteration and the outcomes
    of the iterations before, so that a resumed run goes on with the same numbers.

    Args:
        task_ids: every task of the training split; none where a run tries its settings before it makes anything.
        seed: of the run.
    """

    measure: str | None = None
    """What has to be known of every task before training, a name in `MEASURES`; `begin` is called with it."""

    episodes_before: int = 0
    """Episodes of each task that the policy plays before training, where `measure` is its win rate."""

    records: tuple[str, ...] = ()
    """Columns that its rollouts have beside those of all: estimators may need them."""

    described: str = "the sampler"
    """What messages call it: its name and options."""

    def __init__(self, task_ids: Sequence[str], seed: int):
        self.task_ids, self.seed = task_ids, seed

    def check(self, group_size: int, history_length: int) -> None:
        """Raise ValueError where it cannot play groups of that size, or with context keys that look back so far."""

    def begin(self, measured: Mapping[str, float | None]) -> None:
        """Take in the measure of every task, by task id; called before the first `tasks` where `measure` is set."""

    def tasks(self, iteration: int, count: int, outcomes: Outcomes) -> list[str]:  # noqa: ARG002 - for subclasses
        """The tasks of `count` groups, the first round of an iteration: by default all tasks in a shuffled order, again
        and again, each iteration going on where the one before stopped."""
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
        """Play groups; by default `hgpo_gym.rollouts.collect.collect`, which see."""
        return collect(env, policy, sampling, task_ids=task_ids, seeds=seeds, **options)

    def most_rounds(self, iteration: int) -> int:  # noqa: ARG002 - for subclasses
        """The most rounds of this iteration: in each one the groups that were not informative are played anew."""
        return MOST_ROUNDS

    def redraw(
        self,
        iteration: int,
        round: int,
        count: int,
        outcomes: Outcomes,  # noqa: ARG002 - for subclasses
    ) -> list[str]:
        """The tasks of `count` groups of a later round, drawn uniformly; without repetition, if there are enough."""
        generator = np.random.default_rng((RandomStream.TASKS, self.seed, iteration, round))
        return draw_tasks(generator, self.task_ids, np.ones(len(self.task_ids)), count)

    def informative(self, batch: StepBatch, advantages: np.ndarray) -> np.ndarray:  # noqa: ARG002 - for subclasses
        """bool[groups], in the order of `batch.group_labels`: the groups that are kept; others are played anew."""
        return np.ones(batch.group_labels.max(initial=-1) + 1, dtype=np.bool_)

    def episodes(self, batch: StepBatch, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002 - for subclasses
        """bool[episodes], in the order of `batch.trajectory_labels`: those that credit assignment sees."""
        return np.ones(len(batch.first_rows), dtype=np.bool_)

    def steps(
        self,
        batch: StepBatch,
        advantages: np.ndarray,  # noqa: ARG002 - for subclasses
        progress: float,  # noqa: ARG002 - for subclasses
        generator: np.random.Generator,  # noqa: ARG002 - for subclasses
    ) -> np.ndarray:
        """bool[N]: the steps that the update learns from. `progress` is the share of the training that is done."""
        return np.ones(len(batch), dtype=np.bool_)


def spread(count: int, wanted: int | None) -> list[int]:
    """So many numbers below `count`, evenly spread; None or more than there are is all of them."""
    if wanted is None or wanted >= count:
        return list(range(count))
    return [index * count // wanted for index in range(wanted)]


def tasks_in_order(task_ids: Sequence[str], seed: int, iteration: int, count: int) -> list[str]:
    """The `count` tasks of an iteration: all tasks in a shuffled order, again and again, each iteration going on where
    the one before stopped. A function of the seed and the iteration: every algorithm sees the same tasks."""
    orders: dict[int, np.ndarray] = {}
    tasks = []
    for position in range(iteration * count, (iteration + 1) * count):
        lap, index = divmod(position, len(task_ids))
        if lap not in orders:
            orders[lap] = np.random.default_rng((RandomStream.TASKS, seed, lap)).permutation(len(task_ids))
        tasks.append(task_ids[orders[lap][index]])
    return tasks


def draw_tasks(generator: np.random.Generator, task_ids: Sequence[str], weights: np.ndarray, count: int) -> list[str]:
    """Tasks by weight, without repetition, if there are enough of them. Where too few have weight, the rest comes from
    the others, uniformly.

    Args:
        weights: float64[tasks], 0 or more.
    """
    drawn: list[str] = []
    heavy, others = np.flatnonzero(weights > 0), np.flatnonzero(weights <= 0)
    while len(drawn) < count:
        wanted = min(count - len(drawn), len(task_ids))
        first = min(wanted, len(heavy))
        if first:
            share = weights[heavy] / weights[heavy].sum()
            drawn += [task_ids[index] for index in generator.choice(heavy, first, replace=False, p=share)]
        if wanted > first:
            drawn += [task_ids[index] for index in generator.choice(others, wanted - first, replace=False)]
    return drawn
