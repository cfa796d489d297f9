"""Makes environments by their id: the table of those that are registered, and `make`."""

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from hgpo_gym.envs.base import TextEnv, check_tasks
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
LACKED = {
    "expert": "has no expert, which policy=expert, warmstart.source=expert and estimator-bias ask",
    "split": "has no splits: set evaluation.split=null, and env.split nowhere",
}
"""What is said of an environment that does not take these options, which commands give unasked."""


def option_defaults(id: str) -> dict[str, Any]:
    """The options of a registered environment and their defaults; `inspect.Parameter.empty` where there is none.

    Raises:
        ImportError: its module cannot be imported.
    """
    return {
        name: parameter.default
        for name, parameter in option_parameters(id).items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def option_parameters(id: str) -> dict[str, inspect.Parameter]:
    """What the maker of a registered environment takes, by name. Raises ImportError."""
    return dict(inspect.signature(creator(id)).parameters)


def creator(id: str) -> Callable[..., Any]:
    """What makes a registered environment, mostly its class. Raises ImportError."""
    entry_point = gymnasium.spec(id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point  # type: ignore[return-value]


def make(id: str, **options: Any) -> gymnasium.Env[str, str]:
    """`gymnasium.make` for text environments, with errors that name the nearest id or option.

    Raises:
        ValueError: no such id or option, a value of another type, one is missing that the environment needs, it is no
            text environment, or with these options it has no task.
    """
    if id not in gymnasium.registry:
        raise ValueError(unknown_name("environment", id, sorted(ENVIRONMENTS)))
    parameters = option_parameters(id)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        known = [*parameters, "max_episode_steps"]
        for name in options.keys() - set(known):
            if name in LACKED:
                raise ValueError(
                    f"{id} {LACKED[name]}. An environment of your own has it if its class takes the option {name}."
                )
            raise ValueError(unknown_name(f"option of {id}", name, known))
    kinds: dict[str, Any] = {name: parameter.annotation for name, parameter in parameters.items()}
    kinds["max_episode_steps"] = int | None
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    for name, value in options.items():
        if not _fits(value, kind := kinds.get(name)):
            raise ValueError(f"{name}={value!r}: this option of {id} is {getattr(kind, '__name__', kind)}.")
    given = {**gymnasium.spec(id).kwargs, **options}
    for name, default in option_defaults(id).items():
        if default is inspect.Parameter.empty and name not in given:
            raise ValueError(f"{id} needs the option {name}.")
    env = gymnasium.make(id, disable_env_checker=True, **options)
    if not isinstance(env.unwrapped, TextEnv):
        raise ValueError(f"{id} is no text environment: its class is no hgpo_gym.envs.TextEnv.")
    check_tasks(env.unwrapped)
    return env


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of the type that a signature names; types that are not plain are not looked into."""
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if kind is Sequence:
        return isinstance(value, Sequence) and all(_fits(entry, part) for part in parts for entry in value)
    return kind not in (bool, str, NoneType, Path, os.PathLike) or isinstance(value, kind)
