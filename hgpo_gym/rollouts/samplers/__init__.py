"""Samplers: what is played and learned from. Chosen by the config group `sampler`.

A sampler has three parts: a `Curriculum` names the tasks, a `Collector` plays their groups, and a `Filter` selects what
is learned from. A choice of `sampler` is made with its options and returns one part, or several as a tuple; the other
parts are the defaults, which are those of `in_order`. To add one, write its file in `curricula`, `collectors` or
`filters`. From another package, call `register_sampler` or use an entry point of the group `hgpo_gym.samplers`.
"""

from collections.abc import Sequence

from hgpo_gym.registry import Choice, Registry, one_a_file
from hgpo_gym.rollouts.samplers.base import (
    Collector,
    Curriculum,
    Filter,
    GroupOutcome,
    Outcomes,
    Sampler,
    TaskDraw,
    spread,
    tasks_in_order,
)

SAMPLERS = Registry(
    "sampler",
    {
        name: place
        for part in ("curricula", "filters", "collectors")
        for name, place in one_a_file(f"{__name__}.{part}", classes=True).items()
    },
    arguments=0,
    entry_points="hgpo_gym.samplers",
)
register_sampler = SAMPLERS.register
"""Add your own sampler: `(name, class or function)`. Raises ValueError if the name is in use."""


def make_sampler(choice: Choice, task_ids: Sequence[str], seed: int) -> Sampler:
    """Return the chosen sampler.

    Raises:
        ValueError: an unknown name, option or value.
        TypeError: the registered object makes no part of a sampler.
    """
    parts = SAMPLERS.bind(choice)()
    options = ", ".join(f"sampler.{name}={value}" for name, value in choice.options.items())
    described = f"sampler={choice.name}" + (f" ({options})" if options else "")
    sampler = Sampler(task_ids, seed, described=described)
    for part in parts if isinstance(parts, tuple) else (parts,):
        roles = [name for name, role in _ROLES.items() if isinstance(part, role)]
        if not roles:
            raise TypeError(
                f"sampler={choice.name}: {type(part).__name__} is no part of a sampler. Derive it from Curriculum, "
                "Collector or Filter of hgpo_gym.rollouts.samplers."
            )
        for name in roles:
            setattr(sampler, name, part)
    sampler.collector.described = described
    return sampler


_ROLES = {"curriculum": Curriculum, "collector": Collector, "filter": Filter}

__all__ = [
    "SAMPLERS",
    "Collector",
    "Curriculum",
    "Filter",
    "GroupOutcome",
    "Outcomes",
    "Sampler",
    "TaskDraw",
    "make_sampler",
    "register_sampler",
    "spread",
    "tasks_in_order",
]
