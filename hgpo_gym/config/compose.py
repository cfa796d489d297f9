"""Configurations: composed by Hydra from the files in `configs/`, with errors that name what is wrong."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hgpo_gym.config import choices as registered
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.suggest import unknown_name

FOLDER = registered.FOLDER


class ConfigError(ValueError):
    """A configuration that cannot be: unknown names, values of the wrong kind."""


def groups() -> dict[str, list[str]]:
    """The choices of every config group, by group."""
    return registered.choices(FOLDER)


def load_config(command: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration of a command: `configs/<command>.yaml` with `key=value` and `group=choice` overrides.

    Raises:
        ConfigError: an override that cannot be read, or names no key, group or choice.
    """
    return load_configs(command, overrides, [{}])[0]


def load_configs(command: str, overrides: Sequence[str], changes: Sequence[Mapping[str, Any]]) -> list[DictConfig]:
    """The configuration of a command once for each of `changes`, values of top-level keys: composed only once."""
    overrides = [_env_by_name(override) for override in overrides]
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
        _check_groups(parsed)
        _make_settings(parsed)
        folders = _folders_of_packages()
        with initialize_config_dir(str(FOLDER), version_base="1.3"):
            choices = [str(item.input_line) for item in parsed if item.key_or_group in groups()]
            _check_keys(parsed, compose(command, [*folders, *choices]))
            composed = compose(command, [*folders, *overrides])
        return [_changed(composed, values) for values in changes]
    except OverrideParseException as error:
        raise ConfigError(f"Cannot read {error.override!r}: write key=value. ({error.message})") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error)) from error


def _changed(composed: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """A resolved copy with other values."""
    config = copy.deepcopy(composed)
    for key, value in values.items():
        config[key] = value
    OmegaConf.resolve(config)
    if missing := OmegaConf.missing_keys(config):
        raise ConfigError(f"Set {', '.join(f'{key}=...' for key in sorted(missing))} on the command line.")
    return config


def plain(section: Any) -> dict[str, Any]:
    """A section of a configuration as a plain dictionary."""
    container = OmegaConf.to_container(section, resolve=True)
    assert isinstance(container, dict)
    return {str(name): value for name, value in container.items()}


def _env_by_name(override: str) -> str:
    """`env=namespace/Name-v0` as `env=name`."""
    group, _, choice = override.partition("=")
    return f"env={ENVIRONMENTS[choice].name}" if group == "env" and choice in ENVIRONMENTS else override


def _make_settings(overrides: Sequence[Override]) -> None:
    """Give Hydra the settings of the chosen environment and estimator if no file has them."""
    for override in overrides:
        group, choice = override.key_or_group, str(override.value())
        if group == "env" and (record := registered.without_file(choice, FOLDER)):
            settings = registered.made_settings(record)
            ConfigStore.instance().store(record.name, settings, group="env", package="_global_")
        if group == "algo" and (own := registered.estimator_settings(choice, FOLDER)):
            ConfigStore.instance().store(choice, own, group="algo")


def _folders_of_packages() -> list[str]:
    folders = [json.dumps(f"file://{folder}") for folder in registered.config_folders(FOLDER)[1:]]
    return [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []


def _check_groups(overrides: Sequence[Override]) -> None:
    choices = groups()
    for override in overrides:
        group = override.key_or_group
        if group in choices and override.value() is not None and override.value() not in choices[group]:
            raise ConfigError(unknown_name(group, override.value(), choices[group]))


def _check_keys(overrides: Sequence[Override], config: DictConfig) -> None:
    known = list(_keys(config))
    for override in overrides:
        key = override.key_or_group
        if key in groups() or override.is_add():
            continue
        if key not in known:
            raise ConfigError(unknown_name("config key", key, known))
        _check_kind(key, override.value(), OmegaConf.select(config, key))


def _check_kind(key: str, value: object, default: object) -> None:
    """A value is of the default's kind; null is for the code to judge."""
    kinds: dict[type, tuple[tuple[type, ...], str]] = {
        bool: ((bool,), "true or false"),
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
    }
    allowed, words = kinds.get(type(default), ((object,), ""))
    wrong = not isinstance(value, allowed) or (
        isinstance(value, bool) and bool not in allowed and object not in allowed
    )
    if value is not None and wrong:
        raise ConfigError(f"{key}={value}: expected {words}.")


def _keys(config: DictConfig, prefix: str = "") -> list[str]:
    found = []
    for name in config:
        key = f"{prefix}{name!s}"
        found.append(key)
        value = None if OmegaConf.is_missing(config, name) else config._get_node(name)
        if isinstance(value, DictConfig):
            found += _keys(value, f"{key}.")
    return found
