"""The settings of `hgpo-gym eval run=RUN`: those of the run, with the changes of the command line."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgpo_gym.config import choices
from hgpo_gym.config.compose import ConfigError, check_given, is_of_run, load_config, load_partly, parse_overrides
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.runs.directory import NOT_SET, flatten, read_config
from hgpo_gym.section import unread
from hgpo_gym.trainers.model_kinds import is_language_model

REPLACED_BY_CHOICE = {"env": ("env", "env_name", "evaluation.split"), "algo": ("algo", "learner")}
"""The keys that a group's choice replaces, if they are more than its section: the environment brings its splits, the
algorithm its learner. The prompt, the memory and other settings of an env group stay as in training."""
_ABSENT = object()
TRAINING_ALONE = {
    "seed": "evaluation.decoding_seeds",
    "rollout.temperature": "evaluation.temperature",
    "rollout.num_tasks": "evaluation.tasks",
    "rollout.group_size": "evaluation.decoding_seeds",
    **dict.fromkeys(("rollout.train_tasks", "rollout.staleness", "rollout.overlap", "rollout.record"), ""),
    **dict.fromkeys(("evaluation.every", "resume", "loggers", "algo", "objective", "sampler"), ""),
    "correction": "",
    **dict.fromkeys(("shaping", "checkpoint"), ""),
}
"""Settings that an evaluation does not read, with the setting that it reads instead, if any."""
NEW_MODELS_TOO = dict.fromkeys(("trainer", "warmstart", "tiny"), "")
"""Settings that are read only if a new model is created."""


def load_evaluation(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of `hgpo-gym eval` with these overrides.

    With `run=RUN` it is that of the run, read as data. Overrides replace the keys that they name. `group=choice`
    replaces the keys of that group, and `experiment=NAME` all keys. The command's own settings do not come from the
    run.

    Raises:
        ConfigError: as `load_config`; also if plugins of the run are missing, if its checkpoints do not fit the
            settings, or if `run_dir` is set, which nothing reads.
        FileNotFoundError: the run does not exist.
        ImportError: one of `plugins=[...]` cannot be imported.
        ValueError: the run's config.yaml is damaged.
    """
    for override in overrides:
        if (Path(override) / "config.yaml").is_file():
            raise ConfigError(f"{override} is a run: write run={override}.")
    by_key = {str(item.key_or_group): item for item in parse_overrides(overrides)}
    if "run_dir" in by_key:
        raise ConfigError(f"run_dir={by_key['run_dir'].value()}: eval trains nothing. The run to evaluate is run=...")
    if "run" not in by_key or by_key["run"].value() is None:
        return load_config("eval", overrides)
    run = str(by_key["run"].value())
    trained = _read(Path(run))
    if "experiment" in by_key:
        config = load_config("eval", overrides)
    else:
        composed = load_partly("eval", [*_choices_of(trained, by_key), *overrides])
        config = {name: copy.deepcopy(trained.get(name, value)) for name, value in composed.items()}
        # Keys that are no settings of a run belong to the command.
        command_keys = [key for key in composed if not is_of_run(key)]
        for key in (*command_keys, "plugins", *by_key):
            for path in REPLACED_BY_CHOICE.get(key, (key,)):
                _replace(config, composed, path.split("."))
        check_given(config)
    date = (trained.get("engine") or {}).get("template_date")
    if date is not None and "engine.template_date" not in by_key and "template_date" in config["engine"]:
        config["engine"]["template_date"] = date  # prompts must have the date of training with any engine
    _check_plugins(run, trained, config["plugins"])
    if config["policy"] == "model":
        _check_same_kind(run, trained, config)
    return config


def changes_to(run: Path, resolved: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return, by key, the run's value and the command's, if they differ and an evaluation reads the key.

    Options of another environment are left out if they have their defaults.
    """
    old, new = flatten(read_config(run)), flatten(resolved)
    changes = {
        key: (old.get(key, NOT_SET), new.get(key, NOT_SET))
        for key in dict.fromkeys((*new, *old))
        if key != "plugins" and old.get(key, _ABSENT) != new.get(key, _ABSENT)
    }
    ignored = unread(changes, TRAINING_ALONE | NEW_MODELS_TOO)
    changes = {key: change for key, change in changes.items() if key not in ignored}
    if "env.id" in changes and (environment := ENVIRONMENTS.get(resolved["env"]["id"])):
        defaults = flatten(load_config("eval", [f"env={environment.name}"]))
        changes = {
            key: (old_value, new_value)
            for key, (old_value, new_value) in changes.items()
            if key == "env.id" or not key.startswith("env.") or new_value != defaults.get(key)
        }
    return changes


def default_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults for the environment, algorithm, model and other choices of a run's settings."""
    return load_partly("config", _choices_of(config, {}))


def without_effect(overrides: Sequence[str], config: Mapping[str, Any]) -> str:
    """Return a line that names the overrides that an evaluation does not read; empty if it reads all."""
    new_model = config["run"] is None and config["policy"] == "model"
    table = TRAINING_ALONE if new_model else TRAINING_ALONE | NEW_MODELS_TOO
    names = [f"{key} (here {instead})" if instead else key for key, instead in unread(overrides, table).items()]
    return f"Read by training alone, and without effect here: {', '.join(names)}." if names else ""


def _read(run: Path) -> dict[str, Any]:
    try:
        return read_config(run)
    except FileNotFoundError:
        raise FileNotFoundError(f"run={run} is no run: expected {run / 'config.yaml'}.") from None


def _choices_of(trained: Mapping[str, Any], by_key: Mapping[str, Any]) -> list[str]:
    """Return the choices behind the run's settings, so that their keys are known; without those that overrides set."""
    flat, all_choices = flatten(trained), choices.choices()
    record = ENVIRONMENTS.get(str(flat.get("env.id")))
    # The algorithm's file sets the learner.
    names = {
        group: flat.get(f"{group}.{choices.name_key(group)}") for group in choices.REGISTRIES if group != "learner"
    }
    names |= {"env": record and record.name, "model": flat.get("model.kind")}
    if is_language_model(names["model"]):
        names["model"] = "tiny" if "model.hidden_size" in flat else "pretrained"
    return [f"{group}={name}" for group, name in names.items() if group not in by_key and name in all_choices[group]]


def _replace(config: dict[str, Any], given: Mapping[str, Any], path: Sequence[str]) -> None:
    """Set a key to its value in `given`, or remove it if `given` has no such key."""
    *parents, name = path
    values: Any = given
    for part in parents:
        config = config[part] if isinstance(config.get(part), dict) else config.setdefault(part, {})
        values = values.get(part, {})
    if name in values:
        config[name] = copy.deepcopy(values[name])
    else:
        config.pop(name, None)


def _check_plugins(run: str, trained: Mapping[str, Any], given: Sequence[str]) -> None:
    """Raise ConfigError if the run used plugins that were not given: code that a run names is not executed unasked."""
    plugins = trained.get("plugins") or []
    given_modules = {_module(name) for name in given}
    if missing := [name for name in plugins if _module(name) not in given_modules]:
        raise ConfigError(
            f"run={run} was trained with plugins=[{','.join(map(str, missing))}], code that is run only if "
            "you name it: set plugins=[...] to your copy of it."
        )


def _module(plugin: object) -> str:
    return Path(str(plugin)).name.removesuffix(".py")


def _check_same_kind(run: str, trained: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise ConfigError if the run's checkpoints do not fit these settings."""
    old, new = flatten(trained), flatten(config)
    if old.get("learner.name") != new.get("learner.name"):
        algo = old.get("algo.name")
        raise ConfigError(f"run={run} has algo={algo}, not {new.get('algo.name')}: leave out algo=, or set it to that.")
    if old.get("model.kind") != new.get("model.kind"):
        kind = old.get("model.kind")
        raise ConfigError(
            f"run={run} has model.kind={kind}, not {new.get('model.kind')}: leave out model=, or set the same one."
        )
    if old.get("model.path") != new.get("model.path"):
        raise ConfigError(f"run={run} and model.path={new.get('model.path')} both name a model: leave out one of them.")
