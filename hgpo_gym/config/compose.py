"""Configurations: composed by Hydra from the files in `configs/`, with errors that name the mistake.

The result is plain data with every interpolation resolved. No other module imports Hydra or OmegaConf.
"""

import copy
import json
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hgpo_gym.config import choices
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.memory.forms import MEMORIES
from hgpo_gym.plugins import load_plugins
from hgpo_gym.runs import renamed
from hgpo_gym.runs.directory import flatten
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.settings import RunSettings

PATHS = ("run", "out", "transcripts")
"""Keys whose value is a file or folder."""
NAMED_ELSEWHERE = {
    "trainer.importance_options": "correction",
    "out": "run_dir",
    "output_dir": "run_dir",
    "lr": "trainer.learning_rate",
    "epochs": "trainer.update_epochs",
    "ppo_epochs": "trainer.update_epochs",
    "num_iterations": "trainer.update_epochs",
    "steps": "trainer.iterations",
    "max_steps": "trainer.iterations",
    "total_epochs": "trainer.iterations",
    "batch_size": "trainer.mini_batch_size",
    "adv_estimator": "algo",
    "beta": "trainer.kl_coef",
    "delta": "objective.dual_clip",
    "env.rollout.n": "rollout.group_size",
    "epsilon": "objective.clip_low",
    "epsilon_high": "objective.clip_high",
    "rollout.n": "rollout.group_size",
    "num_generations": "rollout.group_size",
    "max_completion_length": "rollout.max_new_tokens",
}
"""Names of keys in TRL, verl, verl-agent, earlier versions or other commands: hints for unknown keys."""


class ConfigError(ValueError):
    """An invalid configuration: an unknown name, or a value of the wrong kind."""


def load_config(command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a command: `configs/<command>.yaml` with `key=value` and `group=choice` overrides.

    Raises:
        ConfigError: an override that cannot be parsed, or names an unknown key, group or choice.
        ImportError: one of `plugins=[...]` cannot be imported.
    """
    return load_configs(command, overrides, [{}])[0]


def to_yaml(config: Mapping[str, Any]) -> str:
    """Return a configuration as YAML text. Comments explain the options of registered choices."""
    lines = []
    for key, value in config.items():
        meanings = choices.section_meanings(key, value)
        if not meanings:
            lines.append(_dumped({key: value}))
            continue
        lines.append(f"{key}:\n")
        for option, setting in value.items():
            comment = textwrap.fill(
                meanings.get(option, ""), 116, initial_indent="# ", subsequent_indent="# ", break_long_words=False
            )
            lines.append(textwrap.indent(f"{comment}\n{_dumped({option: setting})}".lstrip(), "  "))
    return "".join(lines)


def _dumped(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)


def load_run(overrides: Sequence[str]) -> RunSettings:
    """Return the settings of `hgpo-gym train` with these overrides. Raises ValueError and ImportError."""
    return parse_run(load_config("config", overrides))


def parse_run(config: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a run in the configuration of any command. Raises ValueError."""
    return RunSettings.parse(config)


def is_of_run(key: str) -> bool:
    """Return True if a top-level key is a setting of runs, and not one of a command alone."""
    return key in RunSettings.model_fields


def load_configs(command: str, overrides: Sequence[str], changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the configuration of a command for each of `changes`, values of top-level keys. Hydra runs only once."""
    with _mistakes_named():
        composed = _compose(command, parse_overrides(overrides))
        configs = [_changed(composed, values) for values in changes]
    for config in configs:
        check_given(config)
    return configs


def load_partly(command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Return a configuration as `load_config` does, but leave missing required values as `choices.MISSING`."""
    with _mistakes_named():
        return _changed(_compose(command, parse_overrides(overrides)), {})


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """Return the overrides of a command line, parsed after the plugins that it names are loaded.

    Raises:
        ConfigError: an override that cannot be parsed.
        ImportError: one of `plugins=[...]` cannot be imported.
    """
    with _mistakes_named():
        parser = OverridesParser.create()
        # Plugins first: they may register names that the second pass translates.
        _load_plugins(parser.parse_overrides(list(map(_by_current_name, overrides))))
        current = list(map(_by_current_name, overrides))
        parsed = parser.parse_overrides(current)
    for old, new in zip(overrides, current, strict=True):
        if old != new and not new.startswith("env="):
            warnings.warn(f"{old} is now {new}.", FutureWarning, stacklevel=2)
    for override in parsed:
        if override.is_sweep_override():
            raise ConfigError(_several_values(override))
    return parsed


def check_given(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a required value is missing."""
    if missing := sorted(key for key, value in flatten(config).items() if value == choices.MISSING):
        raise ConfigError(f"Set {', '.join(f'{key}=...' for key in missing)} on the command line.")


@contextmanager
def _mistakes_named() -> Iterator[None]:
    try:
        yield
    except OverrideParseException as error:
        raise ConfigError(
            f"Cannot read {error.override!r}: write key=value, without spaces round the =, and lists in quotes: "
            "'algos=[grpo,hgpo]', and texts with signs in quotes of their own: 'prompt.first=\"{observation}\"'."
        ) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error)) from error


def _compose(command: str, overrides: Sequence[Override]) -> DictConfig:
    _check_groups(command, overrides)
    env = next((str(item.value()) for item in reversed(overrides) if item.key_or_group == "env"), None)
    generated = choices.made_choices(env)
    _store(generated)
    # Part of the cache key: a changed file or plugin must be composed anew.
    sources = choices.file_times(), repr(generated)
    folders, groups = _folders_of_packages(), choices.choices()
    group_overrides = [str(item.input_line) for item in overrides if item.key_or_group in groups]
    config = copy.copy(_compose_once(command, (*folders, *group_overrides), sources))
    made = choices.made_settings(config)
    # A file leaves out what the signature has, and Hydra takes values of known keys only.
    added = [
        f"++{group}.{key}={json.dumps(value)}"
        for (group, name), settings in made.items()
        if choices.has_file(group, name)
        for key, value in settings.items()
        if key not in config[group]
    ]
    _drop_window(config)
    for (group, _), settings in made.items():
        # What a recipe or an experiment sets goes before the default.
        config[group] = OmegaConf.merge(settings, config[group])
    _check_keys(command, overrides, config)
    try:
        return _with_values(config, [item for item in overrides if item.key_or_group not in groups])
    except (_NotAValueError, OmegaConfBaseException):  # Hydra reads all files again, and says what is wrong
        _store({entry: settings for entry, settings in made.items() if not choices.has_file(*entry)})
        values = (str(item.input_line) for item in overrides)
        config = copy.copy(_compose_once(command, (*folders, *added, *values), (*sources, repr(made))))
        _drop_window(config)
        return config


def _drop_window(config: DictConfig) -> None:
    """Leave out the window that an environment's file sets for `memory=window`, if another form is chosen."""
    memory = config.get("memory", {})
    if memory.get("name") in MEMORIES and "window" not in MEMORIES.options(memory.name):
        config.memory = OmegaConf.masked_copy(memory, [key for key in memory if key != "window"])


def _store(generated: Mapping[tuple[str, str], dict[str, Any]]) -> None:
    """Make choices without a file known to Hydra."""
    for (group, name), settings in generated.items():
        ConfigStore.instance().store(name, settings, group, package="_global_" if group == "env" else None)


class _NotAValueError(Exception):
    """An override that adds or removes a key, or names a package."""


def _with_values(config: DictConfig, overrides: Sequence[Override]) -> DictConfig:
    """Return a copy with the values of key=value, which Hydra sets last."""
    original, config = config, copy.deepcopy(config)
    for override in overrides:
        if override.type is not OverrideType.CHANGE or override.package is not None:
            raise _NotAValueError
        key = override.key_or_group
        OmegaConf.update(config, key, override.value(), merge=True, force_add=_within_open(key, original))
    return config


def _within_open(key: str, config: DictConfig) -> bool:
    """Return True if a key is an empty mapping, or in one, which accepts any keys."""
    selected = OmegaConf.select(config, key)
    return (OmegaConf.select(config, key.rpartition(".")[0] or key) if selected is None else selected) == {}


@lru_cache(maxsize=64)
def _compose_once(command: str, overrides: tuple[str, ...], _sources: object) -> DictConfig:
    """Return a configuration from Hydra, cached while the sources of settings are unchanged. Do not change it."""
    # Hydra takes a quarter of a second, hence the cache.
    with initialize_config_dir(str(choices.FOLDER), version_base="1.3"):
        return compose(command, list(overrides))


def _changed(composed: DictConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved copy with other values of top-level keys."""
    config = copy.deepcopy(composed)
    for key, value in values.items():
        config[key] = value
    OmegaConf.resolve(config)
    container = OmegaConf.to_container(config)
    assert isinstance(container, dict)
    return {str(name): value for name, value in container.items()}


def _load_plugins(overrides: Sequence[Override]) -> None:
    """Load the plugins in `plugins=[...]`, before choices are looked up."""
    for override in overrides:
        if override.key_or_group == "plugins":
            names = override.value()
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ConfigError(f"plugins={names}: expected a list of Python files or modules, plugins=[my_file.py].")
            load_plugins(map(str, names))


def _by_current_name(override: str) -> str:
    """Return an override with current names: `env=namespace/Name-v0` as `env=name`, renamed keys and choices."""
    group, _, choice = override.partition("=")
    if group in renamed.SETTINGS:
        return f"{renamed.SETTINGS[group]}={choice}"
    if group == "env" and choice in ENVIRONMENTS:
        return f"env={ENVIRONMENTS[choice].name}"
    return f"{group}={renamed.CHOICES.get(group, {}).get(choice, choice)}" if choice else override


def _several_values(override: Override) -> str:
    """Return an error message for a list without brackets, which Hydra takes for a sweep over runs."""
    key, _, values = str(override.input_line).partition("=")
    if key in choices.choices():
        return f"{key}={values}: {key} takes one. hgpo-gym compare 'algos=[grpo,hgpo]' trains with several."
    return f"{key}={values}: write a list in brackets, and in quotes for the shell: '{key}=[{values}]'."


def _folders_of_packages() -> list[str]:
    folders = [json.dumps(f"file://{folder}") for folder in choices.config_folders()[1:]]
    return [f"hydra.searchpath=[{','.join(folders)}]"] if folders else []


def _check_groups(command: str, overrides: Sequence[Override]) -> None:
    all_choices, command_groups = choices.choices(), choices.groups_of(command)
    for override in overrides:
        group = override.key_or_group
        if group in all_choices and group not in command_groups:
            commands = [path.stem for path in choices.FOLDER.glob("*.yaml") if group in choices.groups_of(path.stem)]
            raise ConfigError(f"{group}=...: it is for hgpo-gym {' and '.join(sorted(commands))} alone.")
        if group in all_choices and override.value() is not None and override.value() not in all_choices[group]:
            hint = " One of your own is known once its package is installed." if group == "env" else ""
            raise ConfigError(unknown_name(group, override.value(), all_choices[group]) + hint)


def _check_keys(command: str, overrides: Sequence[Override], config: DictConfig) -> None:
    valid = list(dict.fromkeys([*_keys(config), *sorted(choices.groups_of(command))]))
    for override in overrides:
        key = override.key_or_group
        if key in choices.choices() or override.is_add():
            continue
        if key not in valid:
            if _within_open(key, config):
                continue
            group = key.partition(".")[0]
            if group == "env" and config.env.id in ENVIRONMENTS:
                choices.env_section(ENVIRONMENTS[config.env.id])  # raises ImportError if its package is missing
            near_first = sorted(valid, key=lambda other: other.partition(".")[0] != group)
            raise ConfigError(
                _of_others(key, config) or unknown_name("config key", key, near_first, meant=_renamed(key))
            )
        default = "" if OmegaConf.is_missing(config, key) else OmegaConf.select(config, key)
        _check_kind(key, override.value(), default)


def _of_others(key: str, config: DictConfig) -> str:
    """Return a message that names the choices of the key's group that have it; empty if none has or the chosen one."""
    group, _, option = key.partition(".")
    having = []
    for name in choices.REGISTRIES.get(group, ()):
        with suppress(ImportError):  # of a choice whose package is missing
            if option.partition(".")[0] in choices.choice_settings(choices.REGISTRIES[group], name):
                having.append(name)
    if not having or (chosen := config[group][choices.name_key(group)]) in having:
        return ""
    return f"Unknown config key {key!r}: {group}={chosen} has no {option}. These have: {', '.join(having)}."


def _renamed(key: str) -> str | None:
    """Return our name of a key that has this name elsewhere, with its section or without; None if unknown."""
    return NAMED_ELSEWHERE.get(key) or NAMED_ELSEWHERE.get(key.rpartition(".")[2])


def _check_kind(key: str, value: object, default: object) -> None:
    """Raise ConfigError if a value has another type than the default. null is checked by the code that reads it."""
    kinds: dict[type, tuple[tuple[type, ...], str]] = {
        bool: ((bool,), "true or false"),
        DictConfig: ((dict,), f"a mapping, {key}={{name: value}}"),
        ListConfig: ((list, str, int, float), f"a list, {key}=[...]"),
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
    }
    allowed, expectation = kinds.get(type(default), ((object,), ""))
    # bool is a subclass of int in Python.
    mismatch = not isinstance(value, allowed) or (
        isinstance(value, bool) and bool not in allowed and object not in allowed
    )
    if value is not None and mismatch:
        raise ConfigError(f"{key}={value}: expected {expectation}.")
    if key in PATHS and not isinstance(value, str) and (value, default) != (None, None):
        raise ConfigError(f"{key}={value}: expected a path. One like a number goes in quotes, {key}='\"5\"'.")


def _keys(config: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for name in config:
        key = f"{prefix}{name!s}"
        keys.append(key)
        value = None if OmegaConf.is_missing(config, name) else config._get_node(name)
        if isinstance(value, DictConfig):
            keys += _keys(value, f"{key}.")
    return keys
