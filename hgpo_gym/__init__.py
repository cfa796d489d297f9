"""hgpo_gym: multi-turn text environments for Gymnasium, and HGPO beside GRPO and GiGPO on them.

Importing the package registers its environment ids with Gymnasium, and those of installed plugins (see `plugins`). If
Gymnasium is not imported yet, this happens when it is. A part of the package imports only what it needs:
`hgpo_gym.advantages` loads neither Gymnasium nor torch, and the environments and the memory load no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from hgpo_gym.advantages import Advantages, StepBatch, estimate, register_estimator
    from hgpo_gym.api import compare, evaluate, load_run, train
    from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, check_text_env, make, make_vec, register
    from hgpo_gym.memory import ContextWrapper, Memory, make_memory, register_key_function, register_memory
    from hgpo_gym.rollouts.samplers import register_sampler
    from hgpo_gym.rollouts.shaping import register_shaping
    from hgpo_gym.rollouts.teams import register_team
    from hgpo_gym.trainers.learners import register_learner
    from hgpo_gym.trainers.update.objectives import register_objective

__version__ = "0.1.0"

_PUBLIC = {
    "hgpo_gym.envs": ("TextEnv", "TextVectorEnv", "Turn", "check_text_env", "make", "make_vec", "register"),
    "hgpo_gym.memory": ("ContextWrapper", "Memory", "make_memory", "register_key_function", "register_memory"),
    "hgpo_gym.advantages": ("Advantages", "StepBatch", "estimate", "register_estimator"),
    "hgpo_gym.rollouts.samplers": ("register_sampler",),
    "hgpo_gym.rollouts.shaping": ("register_shaping",),
    "hgpo_gym.rollouts.teams": ("register_team",),
    "hgpo_gym.trainers.update.objectives": ("register_objective",),
    "hgpo_gym.trainers.learners": ("register_learner",),
    "hgpo_gym.api": ("compare", "evaluate", "load_run", "train"),
}
"""The public names of each module. A name is imported at its first use, so that torch loads only if it is needed."""
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "Advantages",
    "ContextWrapper",
    "Memory",
    "StepBatch",
    "TextEnv",
    "TextVectorEnv",
    "Turn",
    "__version__",
    "check_text_env",
    "compare",
    "estimate",
    "evaluate",
    "load_run",
    "make",
    "make_memory",
    "make_vec",
    "register",
    "register_estimator",
    "register_key_function",
    "register_learner",
    "register_memory",
    "register_objective",
    "register_sampler",
    "register_shaping",
    "register_team",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


@wrapt.when_imported("gymnasium")
def _register_environments(_gymnasium: object) -> None:
    import_module("hgpo_gym.envs")
