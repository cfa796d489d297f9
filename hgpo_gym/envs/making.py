"""Makes environments by their id: the table of those that are registered, and `make`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from hgpo_gym.envs.base import TextEnv
from hgpo_gym.suggest import unknown_name


@dataclass(frozen=True, slots=True)
class EnvRecord:
    """One registered environment, see `register`."""

    id: str
    name: str
    entry_point: str | Callable[..., TextEnv]
    max_episode_steps: int
    description: str
    configs: Path | None


ENVIRONMENTS: dict[str, EnvRecord] = {}


def option_defaults(id: str) -> dict[str, Any]:
    """The options of a registered environment and their defaults; `inspect.Parameter.empty` where there is none.

    Raises:
        ImportError: its module cannot be imported.
    """
    return {
        name: parameter.default
        for name, parameter in _parameters(id).items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _parameters(id: str) -> dict[str, inspect.Parameter]:
    entry_point = gymnasium.spec(id).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    return dict(inspect.signature(creator).parameters)  # type: ignore[arg-type]


def make(id: str, **options: Any) -> gymnasium.Env[str, str]:
    """`gymnasium.make` for text environments, with errors that name the nearest id or option.

    Raises:
        ValueError: no such id or option, or one is missing that the environment cannot do without.
    """
    if id not in gymnasium.registry:
        raise ValueError(unknown_name("environment", id, sorted(ENVIRONMENTS)))
    parameters = _parameters(id)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        known = [*parameters, "max_episode_steps"]
        for name in options.keys() - set(known):
            raise ValueError(unknown_name(f"option of {id}", name, known))
    given = {**gymnasium.spec(id).kwargs, **options}
    for name, default in option_defaults(id).items():
        if default is inspect.Parameter.empty and name not in given:
            raise ValueError(f"{id} needs the option {name}.")
    return gymnasium.make(id, disable_env_checker=True, **options)
