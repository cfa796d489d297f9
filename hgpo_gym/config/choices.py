"""Settings for what is registered and has no file in `configs/`: environments, made from the options of their class,
and estimators, made from the options of their function."""

from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.envs.registration import EnvRecord, option_defaults

FOLDER = Path(__file__).parents[1] / "configs"
SET_BY_COMMANDS = ("expert", "render_mode")
MISSING = "???"
"""Hydra's word for a value that has to be given."""


def config_folders(own: Path = FOLDER) -> list[Path]:
    """The folders of choices: `own`, then those that packages have registered."""
    return [own, *sorted({record.configs for record in ENVIRONMENTS.values() if record.configs})]


def choices(own: Path = FOLDER) -> dict[str, list[str]]:
    """The choices of every group, by group; in `env` and `algo` also what is registered without a file."""
    found: dict[str, set[str]] = {}
    for folder in config_folders(own):
        for path in folder.glob("*/*.yaml"):
            found.setdefault(path.parent.name, set()).add(path.stem)
    found["env"] |= {record.name for record in ENVIRONMENTS.values()}
    found["algo"] |= set(ESTIMATORS)
    return {group: sorted(found[group]) for group in sorted(found)}


def without_file(name: str, own: Path = FOLDER) -> EnvRecord | None:
    """The registered environment of this name, if no folder of choices has a file for it."""
    if _has_file("env", name, own):
        return None
    return next((record for record in ENVIRONMENTS.values() if record.name == name), None)


def made_settings(record: EnvRecord) -> dict[str, Any]:
    """What a file in `configs/env` would hold: the options of the class with their defaults, the step limit, a prompt.

    Options whose default no YAML file can hold are left out.
    """
    options = {
        name: MISSING if default is Parameter.empty else default
        for name, default in option_defaults(record.id).items()
        if name not in SET_BY_COMMANDS and (default is Parameter.empty or _is_plain(default))
    }
    settings: dict[str, Any] = {
        "env_name": record.name,
        "env": {"id": record.id, "max_episode_steps": record.max_episode_steps, **options},
    }
    if "split" not in options:
        settings["evaluation"] = {"split": None}
    if record.configs and (record.configs / "prompt" / f"{record.name}.yaml").exists():
        settings["defaults"] = [{"override /prompt": record.name}]
    return settings


def estimator_settings(name: str, own: Path = FOLDER) -> dict[str, Any] | None:
    """What a file in `configs/algo` would hold for an estimator that has none: its options with their defaults.

    Options whose default no YAML file can hold are left out.
    """
    if name not in ESTIMATORS or _has_file("algo", name, own):
        return None
    options = list(signature(ESTIMATORS[name]).parameters.values())[1:]
    defaults = {option.name: MISSING if option.default is Parameter.empty else option.default for option in options}
    return {"name": name} | {option: default for option, default in defaults.items() if _is_plain(default)}


def _has_file(group: str, name: str, own: Path) -> bool:
    return any((folder / group / f"{name}.yaml").exists() for folder in config_folders(own))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    return value is None or isinstance(value, bool | int | float | str)
