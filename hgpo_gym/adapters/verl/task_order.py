"""The order of training tasks. verl draws tasks before it knows how earlier ones were played."""

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.measures import expert_lengths
from hgpo_gym.rollouts.samplers import Collector, Filter, GroupOutcome, Sampler, TaskDraw, make_sampler


class _NotPlayed(Sequence[Sequence[GroupOutcome]]):
    """The outcomes of earlier iterations, which do not exist: whoever reads them is refused."""

    def __init__(self, name: str):
        self._name = name

    def __getitem__(self, index: object) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError(
            f"sampler={self._name} is not possible in verl: it reads the outcomes of earlier iterations, and verl "
            "draws tasks before they are known. Set sampler=in_order or sampler=stages."
        )


def find_sampler(choice: Choice, task_ids: Sequence[str], seed: int) -> Sampler:
    """Return the sampler.

    Raises:
        ValueError: an unknown name or option, or a sampler that does more than choose tasks, or needs episodes for it.
    """
    sampler = make_sampler(choice, task_ids, seed)
    if type(sampler.collector) is not Collector or type(sampler.filter) is not Filter:
        raise ValueError(
            f"sampler={choice.name} is not possible in verl, which plays and selects episodes itself: set "
            "sampler=in_order or sampler=stages. -- algorithm.filter_groups.enable=true is verl's dynamic sampling."
        )
    if sampler.curriculum.measure not in (None, "expert_length"):
        raise ValueError(
            f"sampler={choice.name} is not possible in verl: it needs the {sampler.curriculum.measure} of every task "
            "before training. Set sampler=in_order or sampler=stages."
        )
    unmeasured = dict.fromkeys(task_ids, None)
    sampler.curriculum.tasks(TaskDraw(task_ids, seed, 1, 0, _NotPlayed(choice.name), unmeasured), 1)
    return sampler


def tasks_of_training(
    sampler: Sampler, make_expert_env: Callable[[], ContextWrapper], groups: int, iterations: int, max_retries: int
) -> Iterator[str]:
    """Yield the tasks of all iterations, those that this package's own trainer plays.

    Args:
        sampler: from `find_sampler`.
        make_expert_env: makes the tasks' environment with its expert, in groups of one.
        groups: of an iteration.
        iterations: their number.
        max_retries: how often an expert's episode is played again if its environment fails.
    """
    if sampler.curriculum.measure is not None:
        env = make_expert_env()
        try:
            sampler.measured = expert_lengths(sampler, env, max_retries, max_failed=1.0).values
        finally:
            env.close()
    for iteration in range(iterations):
        yield from sampler.tasks(iteration, groups, _NotPlayed(sampler.described.removeprefix("sampler=")))
