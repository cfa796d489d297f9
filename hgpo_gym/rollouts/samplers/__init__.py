"""Samplers: the choice of tasks, groups, episodes and steps to learn from. Chosen by the config group `sampler`.

To add one, write its file and add its line to `SAMPLERS`. From another package, call `register_sampler` or use an entry
point of the group `hgpo_gym.samplers`. A sampler is a subclass of `Sampler`, made with `(task_ids, seed, *, options)`.
"""

from collections.abc import Sequence

from hgpo_gym.registry import Choice, Registry
from hgpo_gym.rollouts.samplers.base import GroupOutcome, Outcomes, Sampler, spread, tasks_in_order
from hgpo_gym.rollouts.samplers.best_plan import BestPlan
from hgpo_gym.rollouts.samplers.dynamic import Dynamic
from hgpo_gym.rollouts.samplers.gaussian import Gaussian
from hgpo_gym.rollouts.samplers.in_order import InOrder
from hgpo_gym.rollouts.samplers.pods import Pods
from hgpo_gym.rollouts.samplers.pools import Pools
from hgpo_gym.rollouts.samplers.restarts import Restarts
from hgpo_gym.rollouts.samplers.stages import Stages
from hgpo_gym.rollouts.samplers.tree import TreeSampler

SAMPLERS = Registry(
    "sampler",
    {
        "in_order": InOrder,
        "dynamic": Dynamic,
        "pods": Pods,
        "gaussian": Gaussian,
        "pools": Pools,
        "stages": Stages,
        "tree": TreeSampler,
        "best_plan": BestPlan,
        "restarts": Restarts,
    },
    arguments=2,
    entry_points="hgpo_gym.samplers",
)
register_sampler = SAMPLERS.register
"""Add your own sampler: `(name, class)`. Raises ValueError if the name is in use."""


def make_sampler(choice: Choice, task_ids: Sequence[str], seed: int) -> Sampler:
    """Return the chosen sampler.

    Raises:
        ValueError: an unknown name, option or value.
        TypeError: the registered class is no `Sampler`.
    """
    sampler = SAMPLERS.bind(choice)(task_ids, seed)
    if not isinstance(sampler, Sampler):
        raise TypeError(f"sampler={choice.name}: derive {type(sampler).__name__} from hgpo_gym's Sampler.")
    options = ", ".join(f"sampler.{name}={value}" for name, value in choice.options.items())
    sampler.described = f"sampler={choice.name}" + (f" ({options})" if options else "")
    return sampler


__all__ = [
    "SAMPLERS",
    "GroupOutcome",
    "InOrder",
    "Outcomes",
    "Sampler",
    "make_sampler",
    "register_sampler",
    "spread",
    "tasks_in_order",
]
