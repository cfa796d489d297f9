"""The three parts of a sampler: a curriculum, a collector and a filter.

None of them has random state. What they decide is a function of their options, the seed, the iteration and the outcomes
of earlier iterations, so that a resumed run continues with the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs.vector import TextVectorEnv
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


class TaskDraw(NamedTuple):
    """All that the choice of tasks may depend on.

    Attributes:
        task_ids: every task of the training split.
        seed: of the run.
        iteration: from 0.
        round: from 0. Later rounds replace groups that failed or that the filter rejects.
        outcomes: of earlier iterations.
        measured: the curriculum's measure of every task before training, by task id; empty without one.
    """

    task_ids: Sequence[str]
    seed: int
    iteration: int
    round: int = 0
    outcomes: Outcomes = ()
    measured: Mapping[str, float | None] = {}

    @property
    def generator(self) -> np.random.Generator:
        """Return the generator of this round's tasks."""
        return np.random.default_rng((RandomStream.TASKS, self.seed, self.iteration, self.round))


class Curriculum:
    """The choice of tasks: by default shuffled epochs over all of them, and uniform draws in later rounds."""

    measure: str | None = None
    """The measure of every task that it needs before training, a name in `MEASURES`."""

    episodes_before: int = 0
    """Episodes of each task that the policy plays before training, if `measure` is its win rate."""

    def tasks(self, draw: TaskDraw, count: int) -> list[str]:
        """Return the tasks of `count` groups."""
        if draw.round == 0:
            return tasks_in_order(draw.task_ids, draw.seed, draw.iteration, count)
        return draw_tasks(draw.generator, draw.task_ids, np.ones(len(draw.task_ids)), count)


class Collector:
    """The way that groups are played: by default, all episodes of a group independently.

    Args:
        play: the function that plays groups, with the parameters of `hgpo_gym.rollouts.collect.collect`.
        options: its further parameters.
    """

    records: tuple[str, ...] = ()
    """Columns that its rollouts have beyond those of all rollouts; estimators may need them."""

    described: str = "the sampler"
    """The name and options of the sampler, for messages."""

    def __init__(self, play: Callable[..., Rollout] = collect, **options: Any):
        self._play, self.options = play, options

    def check(self, group_size: int, history_length: int) -> None:
        """Raise ValueError if it does not support this group size or this history length of the context keys."""

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
        """Play a group of each task. Raises ValueError as `check` does."""
        vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
        self.check(vector.group_size, env.history_length)
        return self._play(env, policy, sampling, task_ids=task_ids, seeds=seeds, **self.options, **options)


class Filter:
    """The choice of groups, episodes and steps that are learned from: by default all.

    A method that is not overridden is not called.
    """

    def most_rounds(self, iteration: int) -> int:  # noqa: ARG002 - for subclasses
        """Return the most rounds of this iteration; each round replaces uninformative groups."""
        return MOST_ROUNDS

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

    def overrides(self, method: str) -> bool:
        """Return whether its class overrides this method of `Filter`."""
        return getattr(type(self), method) is not getattr(Filter, method)


@dataclass
class Sampler:
    """A run's choice of what is played and learned from.

    Attributes:
        task_ids: every task of the training split; empty while a run checks its settings.
        seed: of the run.
        described: its name and options, for messages.
        measured: the curriculum's measure of every task before training, by task id; empty without one.
    """

    task_ids: Sequence[str]
    seed: int
    curriculum: Curriculum = field(default_factory=Curriculum)
    collector: Collector = field(default_factory=Collector)
    filter: Filter = field(default_factory=Filter)
    described: str = "the sampler"
    measured: Mapping[str, float | None] = field(default_factory=dict)

    def tasks(self, iteration: int, count: int, outcomes: Outcomes, round: int = 0) -> list[str]:
        """Return the tasks of `count` groups for a round of an iteration.

        Raises:
            ValueError: the curriculum names a wrong number of tasks, or lacks their measures.
        """
        if (measure := self.curriculum.measure) and not self.measured:
            raise ValueError(f"{self.described} needs the {measure} of every task before training: set `measured`.")
        draw = TaskDraw(self.task_ids, self.seed, iteration, round, outcomes, self.measured)
        tasks = self.curriculum.tasks(draw, count)
        if len(tasks) != count:
            raise ValueError(f"{self.described} names {len(tasks)} tasks for {count} groups.")
        return list(tasks)


def check_group_size(group_size: int, needed: int, formula: str, described: str) -> None:
    """Raise ValueError unless groups have as many episodes as a collector plays."""
    if group_size != needed:
        raise ValueError(
            f"rollout.group_size={group_size}: the groups of {described} have {formula} = {needed} episodes. Set "
            f"rollout.group_size={needed}, or other numbers."
        )


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
