"""The one table of environment ids.

`register(...)` records an environment here and in Gymnasium's registry, so that `gymnasium.make`,
`gymnasium.make_vec` and the commands of hgpo-gym all find it under the same id.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from hgpo_gym.envs.base import TextEnv
from hgpo_gym.suggest import unknown_name


@dataclass(frozen=True, slots=True)
class EnvRecord:
    """One registered environment: its Gymnasium id, class, step limit and a line for `hgpo-gym envs`."""

    id: str
    entry_point: str | Callable[..., TextEnv]
    max_episode_steps: int
    description: str


ENVIRONMENTS: dict[str, EnvRecord] = {}


def register(id: str, entry_point: str | Callable[..., TextEnv], *, max_episode_steps: int, description: str) -> None:
    """Register a text environment under `id` (`namespace/Name-v0`).

    Args:
        id: the id for `gymnasium.make`.
        entry_point: the class, or `"module:Class"`, which is imported only when the environment is made.
        max_episode_steps: the default step limit.
        description: one line for people.

    Raises:
        ValueError: the id is taken.
    """
    if id in ENVIRONMENTS or id in gymnasium.registry:
        raise ValueError(f"The environment id {id!r} is taken: choose another name or version.")
    gymnasium.register(
        id=id,
        entry_point=entry_point,
        max_episode_steps=max_episode_steps,
        vector_entry_point=partial(_make_vector, id),
    )
    ENVIRONMENTS[id] = EnvRecord(id, entry_point, max_episode_steps, description)


def make(id: str, **options: Any) -> gymnasium.Env[str, str]:
    """`gymnasium.make` for text environments, with errors that name the nearest id or option.

    Raises:
        ValueError: no such id, or the environment has no such option.
    """
    if id not in gymnasium.registry:
        raise ValueError(unknown_name("environment", id, sorted(ENVIRONMENTS)))
    entry_point = gymnasium.spec(id).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    parameters = inspect.signature(creator).parameters  # type: ignore[arg-type]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        known = [*parameters, "max_episode_steps"]
        for name in options.keys() - set(known):
            raise ValueError(unknown_name(f"option of {id}", name, known))
    return gymnasium.make(id, disable_env_checker=True, **options)


def _make_vector(id: str, num_envs: int, *, group_size: int = 1, **options: Any) -> gymnasium.vector.VectorEnv:
    from hgpo_gym.envs.vector import TextVectorEnv

    num_tasks, remainder = divmod(num_envs, group_size)
    if remainder:
        raise ValueError(f"num_envs={num_envs} is not a multiple of group_size={group_size}.")
    return TextVectorEnv(id, num_tasks=num_tasks, group_size=group_size, **options)


register(
    "hgpo_gym/SignpostMaze-v0",
    "hgpo_gym.envs.signpost_maze:SignpostMazeEnv",
    max_episode_steps=24,
    description="Built in: halls that look alike; the right door is the one a signpost named rooms ago.",
)
register(
    "hgpo_gym/SecretWord-v0",
    "hgpo_gym.envs.secret_word:SecretWordEnv",
    max_episode_steps=8,
    description="Built in: guess a word, in free text, from what is said about the letters of earlier guesses.",
)
register(
    "hgpo_gym/Sokoban-v0",
    "hgpo_gym.envs.sokoban.env:SokobanEnv",
    max_episode_steps=30,
    description="Built in: push boxes onto goals, on generated maps that a solver has solved.",
)
register(
    "hgpo_gym/ALFWorld-v0",
    "hgpo_gym.envs.alfworld.env:ALFWorldEnv",
    max_episode_steps=50,
    description="ALFWorld: household tasks in text (find, clean, heat, cool, light, place), on alfworld's own games.",
)
register(
    "hgpo_gym/WebShop-v0",
    "hgpo_gym.envs.webshop.env:WebShopEnv",
    max_episode_steps=15,
    description="WebShop: find and buy what an instruction asks for, among up to a million products.",
)
