"""Make environments by their id: the table of registered environments, and `make`."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from hgpo_gym.envs.base import TextEnv, check_tasks
from hgpo_gym.option_checks import check_option
from hgpo_gym.suggest import unknown_name


@dataclass(frozen=True, slots=True)
class EnvRecord:
    """Registered environment, see `register`."""

    id: str
    name: str
    entry_point: str | Callable[..., TextEnv]
    max_episode_steps: int
    description: str
    configs: Path | None


ENVIRONMENTS: dict[str, EnvRecord] = {}
LACKED = {
    "expert": "has no expert, which policy=expert, warmstart.source=expert and estimator-bias ask",
    "split": "has no splits: set evaluation.split=null, and env.split nowhere",
}
"""Error text for an environment without these options, which commands pass by default."""


def option_defaults(id: str) -> dict[str, Any]:
    """Return the options of a registered environment with their defaults; `inspect.Parameter.empty` for a required
    option.

    Raises:
        ImportError: its module cannot be imported.
    """
    return {
        name: parameter.default
        for name, parameter in option_parameters(id).items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def option_parameters(id: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of the creator of a registered environment, by name. Raises ImportError."""
    return _parameters(creator(id))


@functools.lru_cache
def _parameters(creator: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(creator).parameters)


def creator(id: str) -> Callable[..., Any]:
    """Return the creator of a registered environment, mostly its class. Raises ImportError."""
    entry_point = gymnasium.spec(id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point  # type: ignore[return-value]


def make(id: str, **options: Any) -> gymnasium.Env[str, str]:
    """Make a registered text environment by `gymnasium.make`, with errors that name the nearest id or option.

    Raises:
        ValueError: no such id or option, a value of another type, one is missing that the environment needs, it is no
            text environment, or with these options it has no task.
    """
    if id not in gymnasium.registry:
        raise ValueError(unknown_name("environment", id, sorted(ENVIRONMENTS)))
    parameters = option_parameters(id)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        option_names = [*parameters, "max_episode_steps"]
        for name in options.keys() - set(option_names):
            if name in LACKED:
                raise ValueError(
                    f"{id} {LACKED[name]}. An environment of your own has it if its class takes the option {name}."
                )
            raise ValueError(unknown_name(f"option of {id}", name, option_names))
    # NumPy scalars become Python's, which the checks of types accept.
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    check_option("max_episode_steps", options.get("max_episode_steps"), int | None, f"option of {id}")
    given = {**gymnasium.spec(id).kwargs, **options}
    for name, default in option_defaults(id).items():
        if default is inspect.Parameter.empty and name not in given:
            raise ValueError(f"{id} needs the option {name}.")
    env = gymnasium.make(id, disable_env_checker=True, **options)
    if not isinstance(env.unwrapped, TextEnv):
        raise ValueError(f"{id} is no text environment: its class is no hgpo_gym.envs.TextEnv.")
    check_tasks(env.unwrapped)
    return env
