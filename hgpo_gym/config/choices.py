"""The choices of every config group: files in `configs/`, and registered entries without a file.

The settings of a registered entry, or of an environment, are the options of its function or class, with their defaults
and explanations. A file is for a choice that also changes other settings, or that differs from these defaults.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import Any

import yaml

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.envs.making import creator
from hgpo_gym.envs.registration import EnvRecord, option_defaults
from hgpo_gym.memory.forms import MEMORIES
from hgpo_gym.policies.engines import ENGINES
from hgpo_gym.registry import Registry, explained_arguments
from hgpo_gym.trainers import registries
from hgpo_gym.trainers.credit_settings import credit_defaults, credit_meanings
from hgpo_gym.trainers.settings import MemorySettings

REGISTRIES = {**registries.REGISTRIES, "engine": ENGINES}
"""The registry of each group whose choices have options."""
FOLDER = Path(__file__).parents[1] / "configs"
SET_BY_COMMANDS = ("expert", "render_mode")
MISSING = "???"
"""Hydra's mark of a required value."""


def config_folders() -> list[Path]:
    """Return the folders of choices: that of this package, then those that other packages have registered."""
    return [FOLDER, *sorted({record.configs for record in ENVIRONMENTS.values() if record.configs})]


def choices() -> dict[str, list[str]]:
    """Return the choices of every group, by group."""
    by_group: dict[str, set[str]] = {"env": {record.name for record in ENVIRONMENTS.values()}}
    by_group |= {group: set(registry) for group, registry in REGISTRIES.items()}
    for folder in config_folders():
        for path in folder.glob("*/*.yaml"):
            by_group.setdefault(path.parent.name, set()).add(path.stem)
    return {group: sorted(by_group[group]) for group in sorted(by_group)}


@cache
def groups_of(command: str) -> frozenset[str]:
    """Return the groups in the configuration of a command; `config` is that of `hgpo-gym train`."""
    groups: set[str] = set()
    for item in yaml.safe_load((FOLDER / f"{command}.yaml").read_text(encoding="utf-8"))["defaults"]:
        if isinstance(item, dict):
            groups |= {name.split()[-1] for name in item}
        elif item != "_self_":
            groups |= groups_of(item)
    return frozenset(groups)


def file_times() -> tuple[tuple[Path, int], ...]:
    """Return every file in the folders of choices with its modification time."""
    return tuple(
        (path, path.stat().st_mtime_ns) for folder in config_folders() for path in sorted(folder.rglob("*.yaml"))
    )


def name_key(group: str) -> str:
    """Return the key that holds the name of the choice in the section of a group."""
    return "kind" if group == "engine" else "name"


def made_choices(env: str | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the choices without a file, by group and name: the named environment with its settings, and the entries
    of all registries with their names alone."""
    generated = {
        ("env", record.name): env_settings(record)
        for record in ENVIRONMENTS.values()
        if record.name == env and not has_file("env", record.name)
    }
    return generated | {
        (group, name): {name_key(group): name}
        for group, registry in REGISTRIES.items()
        for name in registry
        if not has_file(group, name)
    }


def made_settings(config: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the settings of the registered entries and of the environment that a composed configuration has chosen.

    The signature of an entry that is not chosen is not read: that may import torch. So may that of a learner, which has
    no options. An environment whose package is missing is left out: its runs can be compared without it.
    """
    chosen = {
        group: config[group].get(name_key(group)) for group in REGISTRIES if group in config and group != "learner"
    }
    made = {
        (group, name): choice_settings(REGISTRIES[group], name)
        for group, name in chosen.items()
        if name in REGISTRIES[group]
    }
    record = ENVIRONMENTS.get(config["env"].get("id")) if "env" in config else None
    if record is not None and has_file("env", record.name):
        with suppress(ImportError):
            made["env", record.name] = env_section(record)
    return made


def env_section(record: EnvRecord) -> dict[str, Any]:
    """Return the section `env`: the id, the step limit and the class's options with defaults.

    Options whose default YAML cannot express are left out. Raises ImportError if the class's package is missing.
    """
    options = {
        name: MISSING if default is Parameter.empty else default
        for name, default in option_defaults(record.id).items()
        if name not in SET_BY_COMMANDS and (default is Parameter.empty or _is_plain(default))
    }
    return {"id": record.id, "max_episode_steps": record.max_episode_steps, **options}


def env_settings(record: EnvRecord) -> dict[str, Any]:
    """Return the content that a file in `configs/env` would have: the section `env`, the splits, a prompt."""
    section = env_section(record)
    settings: dict[str, Any] = {"env_name": record.name, "env": section}
    if "split" not in section:
        settings["evaluation"] = {"split": None}
    if record.configs and (record.configs / "prompt" / f"{record.name}.yaml").exists():
        settings["defaults"] = [{"override /prompt": record.name}]
    return settings


def choice_settings(registry: Registry, name: str) -> dict[str, Any]:
    """Return the settings of a choice: its name, and its options with their defaults.

    An option may follow another setting, see `registry.follows`. Options whose default YAML cannot express are left
    out.
    """
    options = {
        option: MISSING if parameter.default is Parameter.empty else parameter.default
        for option, parameter in registry.options(name).items()
    }
    options |= {option: f"${{{setting}}}" for option, setting in getattr(registry[name], "follows", {}).items()}
    if registry is MEMORIES:
        options |= {"similarity": None}
    if registry is ESTIMATORS:
        options |= credit_defaults(name)
        # One setting for all estimators of a comparison.
        options |= {option: f"${{{option}}}" for option in ("episode_statistics",) if option in options}
    key = next(group for group, listed in REGISTRIES.items() if listed is registry)
    return {name_key(key): name} | {option: default for option, default in options.items() if _is_plain(default)}


def choice_meanings(registry: Registry, name: str) -> dict[str, str]:
    """Return what each of these settings means, by key, as the docstrings say."""
    meanings = registry.meanings(name)
    if registry is MEMORIES:
        return meanings | explained_arguments(MemorySettings)
    return credit_meanings() | meanings if registry is ESTIMATORS else meanings


def section_meanings(group: str, section: Any) -> dict[str, str]:
    """Return what each key of a group's section means, as the docstring of the chosen function or class says; empty for
    a group whose keys are explained in files."""
    if group == "env" and section.get("id") in ENVIRONMENTS:
        return env_meanings(ENVIRONMENTS[section["id"]])
    registry = REGISTRIES.get(group)
    if registry is None or (name := str(section.get(name_key(group)))) not in registry:
        return {}
    return {name_key(group): registry.summary(name), **choice_meanings(registry, name)}


def env_meanings(record: EnvRecord) -> dict[str, str]:
    """Return what each key of an environment's section means, by key."""
    meanings = {"id": record.description, "max_episode_steps": "steps after which an episode is truncated."}
    with suppress(ImportError):  # its package is missing
        meanings |= explained_arguments(creator(record.id))
    return meanings


def has_file(group: str, name: str) -> bool:
    """Return True if a folder of choices has a file for it."""
    return any((folder / group / f"{name}.yaml").exists() for folder in config_folders())


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    return value is None or isinstance(value, bool | int | float | str)
