"""The settings of `hgpo-gym eval run=RUN`: the run's own, but for what the command line changes."""

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hgpo_gym.config import choices
from hgpo_gym.config.compose import ConfigError, check_given, load_config, load_partly, parse_overrides
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.runs.directory import NOT_SET, flatten, read_config
from hgpo_gym.trainers.settings import RunSettings

REPLACED_BY_CHOICE = {"env": ("env", "env_name", "evaluation.split"), "algo": ("algo", "learner")}
"""What the choice of a group replaces, where that is not the section of its name alone: splits are the environment's,
learners the algorithm's. The prompt, the memory and all else that an env group sets stay as the model knows them."""
_ABSENT = object()
TRAINING_ALONE = {
    "seed": "evaluation.decoding_seeds",
    "rollout.temperature": "evaluation.temperature",
    "rollout.num_tasks": "evaluation.tasks",
    "rollout.group_size": "evaluation.decoding_seeds",
    **dict.fromkeys(("rollout.train_tasks", "rollout.staleness", "rollout.overlap", "rollout.record"), ""),
    **dict.fromkeys(("rollout.rewards", "evaluation.every", "resume", "loggers", "algo", "objective", "sampler"), ""),
    **dict.fromkeys(("shaping", "critic", "checkpoint"), ""),
}
"""What an evaluation does not read, and what it reads instead, if anything."""
NEW_MODELS_TOO = ("trainer", "warmstart", "tiny")
"""What is read where a model is made, and not where a checkpoint is loaded, or none plays."""


def load_evaluation(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of `hgpo-gym eval` with these overrides.

    With `run=RUN` it is that of the run, read as data; overrides replace the keys that they name, `group=choice` that
    group's keys, and `experiment=NAME` all of them. The command's own settings are not the run's business.

    Raises:
        ConfigError: as `load_config`; plugins of the run that were not given; what its checkpoints cannot be; a
            `run_dir`, which would be read by nothing.
        FileNotFoundError: there is no such run.
        ImportError: one of `plugins=[...]` cannot be imported.
        ValueError: the run's config.yaml is damaged.
    """
    for override in overrides:
        if (Path(override) / "config.yaml").is_file():
            raise ConfigError(f"{override} is a run: write run={override}.")
    named = {str(item.key_or_group): item for item in parse_overrides(overrides)}
    if "run_dir" in named:
        raise ConfigError(f"run_dir={named['run_dir'].value()}: eval trains nothing. The run to evaluate is run=...")
    if "run" not in named or named["run"].value() is None:
        return load_config("eval", overrides)
    run = str(named["run"].value())
    trained = _read(Path(run))
    if "experiment" in named:
        config = load_config("eval", overrides)
    else:
        given = load_partly("eval", [*_choices_of(trained, named), *overrides])
        config = {name: copy.deepcopy(trained.get(name, value)) for name, value in given.items()}
        own = given.keys() - RunSettings.model_fields.keys()
        for key in (*own, "plugins", *named):
            for path in REPLACED_BY_CHOICE.get(key, (key,)):
                _replace(config, given, path.split("."))
        check_given(config)
    date = (trained.get("engine") or {}).get("template_date")
    if date is not None and "engine.template_date" not in named and "template_date" in config["engine"]:
        config["engine"]["template_date"] = date  # another engine's prompts are those of the run
    _check_plugins(run, trained, config["plugins"])
    if config["policy"] == "model":
        _check_same_kind(run, trained, config)
    return config


def changes_to(run: Path, settings: RunSettings) -> dict[str, tuple[Any, Any]]:
    """By key, the run's value and that of the command, where they differ and an evaluation reads it; of another
    environment not the options that have their defaults."""
    old, new = flatten(read_config(run)), flatten(settings.resolved)
    changes = {
        key: (old.get(key, NOT_SET), new.get(key, NOT_SET))
        for key in dict.fromkeys((*new, *old))
        if key != "plugins" and old.get(key, _ABSENT) != new.get(key, _ABSENT)
    }
    changes = {key: change for key, change in changes.items() if not _within(key, [*TRAINING_ALONE, *NEW_MODELS_TOO])}
    if "env.id" in changes and (environment := ENVIRONMENTS.get(settings.env.id)):
        defaults = flatten(load_config("eval", [f"env={environment.name}"]))
        changes = {
            key: (before, now)
            for key, (before, now) in changes.items()
            if key == "env.id" or not key.startswith("env.") or now != defaults.get(key)
        }
    return changes


def unread(overrides: Sequence[str], config: Mapping[str, Any]) -> str:
    """A line that names what stands on the command line and an evaluation does not read; empty where all is read."""
    made = config["run"] is None and config["policy"] == "model"
    sections = [*TRAINING_ALONE, *(() if made else NEW_MODELS_TOO)]
    found = [key for item in parse_overrides(overrides) if _within(key := str(item.key_or_group), sections)]
    told = [f"{key} (here {TRAINING_ALONE[key]})" if TRAINING_ALONE.get(key) else key for key in dict.fromkeys(found)]
    return f"Read by training alone, and without effect here: {', '.join(told)}." if told else ""


def _within(key: str, sections: Collection[str]) -> bool:
    """Whether a key is one of these or in one of them."""
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _read(run: Path) -> dict[str, Any]:
    try:
        return read_config(run)
    except FileNotFoundError:
        raise FileNotFoundError(f"run={run} is no run: expected {run / 'config.yaml'}.") from None


def _choices_of(trained: Mapping[str, Any], named: Mapping[str, Any]) -> list[str]:
    """The choices that the run's settings are of, so that their keys are known; without those that are made anew."""
    flat, known = flatten(trained), choices.choices()
    record = ENVIRONMENTS.get(str(flat.get("env.id")))
    # The learner comes with the algorithm.
    names = {group: flat.get(f"{group}.name") for group in choices.REGISTRIES if group != "learner"}
    names |= {"env": record and record.name, "engine": flat.get("engine.kind"), "model": flat.get("model.kind")}
    if names["model"] == "language_model":
        names["model"] = "tiny" if "model.hidden_size" in flat else "pretrained"
    return [f"{group}={name}" for group, name in names.items() if group not in named and name in known[group]]


def _replace(config: dict[str, Any], given: Mapping[str, Any], path: Sequence[str]) -> None:
    """Give a key the value that it has in `given`, or take it out if it is not there."""
    *above, name = path
    values: Any = given
    for part in above:
        config = config[part] if isinstance(config.get(part), dict) else config.setdefault(part, {})
        values = values.get(part, {})
    if name in values:
        config[name] = copy.deepcopy(values[name])
    else:
        config.pop(name, None)


def _check_plugins(run: str, trained: Mapping[str, Any], given: Sequence[str]) -> None:
    """What a run directory names is never run unasked: people send runs around."""
    plugins = trained.get("plugins") or []
    here = {_module(name) for name in given}
    if missing := [name for name in plugins if _module(name) not in here]:
        raise ConfigError(
            f"run={run} was trained with plugins=[{','.join(map(str, missing))}], code that is run only if "
            "you name it: set plugins=[...] to your copy of it."
        )


def _module(plugin: object) -> str:
    return Path(str(plugin)).name.removesuffix(".py")


def _check_same_kind(run: str, trained: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """The run's checkpoints are such as these settings load."""
    before, now = flatten(trained), flatten(config)
    if before.get("learner.name") != now.get("learner.name"):
        algo = before.get("algo.name")
        raise ConfigError(f"run={run} has algo={algo}, not {now.get('algo.name')}: leave out algo=, or set it to that.")
    if before.get("model.kind") != now.get("model.kind"):
        kind = before.get("model.kind")
        raise ConfigError(
            f"run={run} has model.kind={kind}, not {now.get('model.kind')}: leave out model=, or set the same one."
        )
    if before.get("model.path") != now.get("model.path"):
        raise ConfigError(f"run={run} and model.path={now.get('model.path')} both name a model: leave out one of them.")
