"""Facts of environments' pages that come from the code: ids, limits, splits, options."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.envs.registration import load_env_creator

from docs_site.markdown import code, prose, settings, table
from hgpo_gym.envs import ENVIRONMENTS, TextEnv
from hgpo_gym.envs.alfworld.data.dataset import GAMES
from hgpo_gym.envs.alfworld.generation.splits import GENERATED_SPLITS as GENERATED_GAMES
from hgpo_gym.envs.registration import EnvRecord, make, option_defaults
from hgpo_gym.envs.webshop.splits import GENERATED_SPLITS as GENERATED_SHOPS
from hgpo_gym.registry import explained_arguments

PAGES = {"frozen_lake": "gymnasium", "taxi": "gymnasium"}
"""Environments whose page has another name."""
BUILT_IN = ("train", "test", "all")


def own_environments() -> list[EnvRecord]:
    """Return the environments of this package, without those of other installed packages."""
    return [record for record in ENVIRONMENTS.values() if record.id.startswith("hgpo_gym/")]


def option_meanings(id: str) -> dict[str, str]:
    """Return the explanation of each option in the docstring of an environment's class."""
    meanings = explained_arguments(_creator(id))
    return {name: meanings[name] for name in option_defaults(id) if name in meanings}


def options(id: str) -> str:
    """The options of an environment, with their defaults."""
    meanings = option_meanings(id)
    rows = [
        (code(name), "needed" if default is inspect.Parameter.empty else code(repr(default)), prose(meanings[name]))
        for name, default in option_defaults(id).items()
    ]
    return settings(("option", "default", "what it does"), rows)


def environments(_: str = "") -> str:
    """All environments: id, name in the commands, step limit, what it is."""
    rows = [
        (
            f"[{record.id}]({_page(record)})",
            code(f"env={record.name}"),
            f"{record.max_episode_steps} steps",
            prose(record.description),
        )
        for record in own_environments()
    ]
    return settings(("id", "in commands", "limit", "what it is"), rows)


def facts(id: str) -> str:
    """Return an environment's name, its step limit, and its abilities."""
    record, creator = ENVIRONMENTS[id], _creator(id)
    assert isinstance(creator, type)
    assert issubclass(creator, TextEnv)
    rows = [
        (
            "in commands",
            f"{code(f'env={record.name}')}, [settings](../reference/configuration/env.md#env-{record.name})",
        ),
        ("step limit", f"{record.max_episode_steps}; {code('max_episode_steps=')} sets another"),
        ("expert", code("expert=True") if "expert" in option_defaults(id) else "none"),
        ("`snapshot()`, `restore()`", "no" if creator.save_state is TextEnv.save_state else "yes"),
    ]
    return table(("id", code(id)), rows)


def splits(id: str) -> str:
    """Return the number of tasks of each split."""
    sizes = {"hgpo_gym/ALFWorld-v0": _alfworld, "hgpo_gym/WebShop-v0": _webshop}.get(id, lambda: _counted(id))()
    return table(("split", "tasks"), ((code(split), f"{size:,}") for split, size in sizes.items()))


def _alfworld() -> Mapping[str, int]:
    own = {split: sum(games.values()) for split, games in GAMES.items()}
    return own | {split: len(seeds) for split, seeds in GENERATED_GAMES.items()}


def _webshop() -> Mapping[str, int]:
    return {split: _tasks("hgpo_gym/WebShop-v0", split) for split in GENERATED_SHOPS}


def _counted(id: str) -> Mapping[str, int]:
    return {split: _tasks(id, split) for split in BUILT_IN}


def _tasks(id: str, split: str) -> int:
    env = make(id, split=split)
    assert isinstance(env.unwrapped, TextEnv)
    count = len(env.unwrapped.task_ids)
    env.close()
    return count


def _creator(id: str) -> Callable[..., Any]:
    entry_point = ENVIRONMENTS[id].entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def _page(record: EnvRecord) -> str:
    return f"{PAGES.get(record.name, record.name)}.md"
