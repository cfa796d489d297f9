"""The plan of a comparison: the runs of every algorithm and seed, checked to be comparable."""

import json
import os
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hgpo_gym.config.compose import load_configs
from hgpo_gym.config.of_run import default_settings
from hgpo_gym.plain_text import first_of
from hgpo_gym.runs.directory import (
    COMPARED_GROUPS,
    MAY_DIFFER,
    finished_iterations,
    flatten,
    read_config,
)
from hgpo_gym.trainers.open_run import open_run
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.template_date import date_of, saved_date

COMMAND_KEYS = ("algos", "seeds", "jobs", "out", "league", "environments", "only", "launcher")
LONGEST_LABEL = 240
"""Bytes. With `-seed0` and hidden files beside it, a name stays within the 255 bytes of file systems."""
SET_HERE = ("algo", "recipe", "seed", "run_dir", "resume")


class NotComparableError(ValueError):
    """Runs differ in more than the algorithm and the seed."""


class PlannedRun(NamedTuple):
    """A run with the overrides of its configuration."""

    settings: RunSettings
    overrides: list[str]

    @property
    def command(self) -> str:
        """The shell command that trains the run, with a process for each GPU if it needs several."""
        several = ["torchrun", "--nproc_per_node=gpu", "-m", "hgpo_gym"]
        return shlex.join([*(several if self.in_several_processes else ["hgpo-gym"]), "train", *self.overrides])

    @property
    def in_several_processes(self) -> bool:
        return self.settings.distributed != "none"

    @property
    def done(self) -> bool:
        """True if the run has all its iterations."""
        return finished_iterations(self.settings.run_dir) == self.settings.trainer.iterations


def plan(
    algos: Sequence[str | Mapping[str, Any]], seeds: int | Sequence[int], out: Path, overrides: Sequence[str]
) -> list[PlannedRun]:
    """Return the runs of a comparison: those of the first algorithm, by seed, then the next.

    Args:
        algos: see `variants`.
        seeds: see `seed_list`.
        out: the folder of their directories.
        overrides: the overrides of every run.

    Raises:
        ValueError: an unknown algorithm or setting, no iteration, two algorithms whose runs would be the same, or an
            existing run with other settings or more iterations.
        NotComparableError: the runs differ in more than the algorithm and the seed.
    """
    planned = []
    listed = seed_list(seeds)
    for variant in variants(algos):
        folders = [out / f"{variant.label}-seed{seed}" for seed in listed]
        run_overrides = [*overrides, *variant.overrides]
        changes = [
            {"seed": seed, "run_dir": str(folder), "resume": "auto"}
            for seed, folder in zip(listed, folders, strict=True)
        ]
        for change, config in zip(changes, load_configs("config", run_overrides, changes), strict=True):
            seed_overrides = [f"{key}={value if value == 'auto' else written(value)}" for key, value in change.items()]
            planned.append(PlannedRun(RunSettings.parse(config), [*run_overrides, *seed_overrides]))
    planned = _at_one_date(planned)
    iterations = planned[0].settings.trainer.iterations
    if iterations < 1:
        raise ValueError(f"trainer.iterations={iterations}: a comparison needs at least 1.")
    recorded = {"what is asked for": planned[0].settings.resolved}
    for run in planned:
        folder = run.settings.run_dir
        # Raises if an existing run has other settings or more iterations.
        open_run(folder, run.settings.resume, run.settings.resolved, iterations, default_settings)
        # `open_run` has checked the settings that the file of an older run lacks.
        recorded[folder.name] = flatten(run.settings.resolved) | (flatten(read_config(folder)) if run.done else {})
    check_comparable(recorded)
    check_no_duplicates(planned)
    return planned


def _at_one_date(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the runs with one date for chat templates that print it: that of existing runs, or today."""
    first, existing_dates = planned[0].settings, (saved_date(run.settings.run_dir) for run in planned)
    date = next((day for day in existing_dates if day is not None), None) or date_of(
        first.engine, first.run_dir, first.model
    )
    if date is None or first.engine.options["template_date"] is not None:
        return list(planned)
    setting = f"engine.template_date={written(date)}"
    return [PlannedRun(run.settings.at_date(date), [*run.overrides, setting]) for run in planned]


def check_no_duplicates(planned: Sequence[PlannedRun]) -> None:
    """Raise ValueError if two runs differ in their names only, before either is trained."""
    seen: dict[tuple[tuple[str, Any], ...], Path] = {}
    for run in planned:
        folder = run.settings.run_dir
        settings = flatten({**run.settings.resolved, "run_dir": "", "env_name": ""})
        # setdefault returns the folder of an earlier run with equal settings, or this one.
        first = seen.setdefault(tuple((key, _comparable(settings[key])) for key in sorted(settings)), folder)
        if first != folder:
            name, other = (os.path.relpath(path, os.path.commonpath([first, folder])) for path in (first, folder))
            raise ValueError(
                f"{name} and {other} would be the same run, with equal settings: an option that has its default makes "
                "no other algorithm, and what a command sets for all makes no other environment. Leave one of them out."
            )


def _comparable(value: Any) -> Any:
    """Return a key to look a value up by: 1 equals 1.0 and not true."""
    # In Python 1 == True, and both have the same hash.
    return (type(value) is bool, value) if isinstance(value, bool | int | float) else json.dumps(value)


def of_every_run(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a command that its runs share. Raises ValueError if the comparison sets one of them."""
    names = [override.split("=")[0] for override in overrides]
    for name in SET_HERE:
        if name in names:
            raise ValueError(f"{name}=... is set for every run: choose by algos=, seeds= and out=.")
    are_command_keys = [name.lstrip("+~").split(".")[0] in COMMAND_KEYS for name in names]
    return [
        override for override, is_command_key in zip(overrides, are_command_keys, strict=True) if not is_command_key
    ]


def written(value: Any) -> str:
    """Return a value as Hydra reads it in an override: texts in quotes, the keys of mappings without."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """Return the training seeds that `seeds` means: a list, or a number n for 0 to n - 1.

    Raises:
        ValueError: no seed, a repeated seed, or a value that is not a whole number.
    """
    listed = list(range(seeds)) if isinstance(seeds, int) else as_list(seeds)
    if not listed or not all(isinstance(seed, int) for seed in listed) or len(set(listed)) < len(listed):
        raise ValueError(f"seeds={seeds}: give different whole numbers, seeds=[0,1,2], or how many: seeds=3.")
    return listed


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def check_comparable(configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise if runs differ in more than `algo.*`, the seed and settings that do not change numbers (`MAY_DIFFER`).

    Args:
        configs: the resolved configuration of each run, by a name for messages.

    Raises:
        NotComparableError: names each setting that differs, its values, and the runs that have them.
    """
    flat = {name: flatten(config) for name, config in configs.items()}
    keys = sorted({key for settings in flat.values() for key in settings if not key.startswith(MAY_DIFFER)})
    lines = []
    for key in keys:
        runs = defaultdict(list)
        for name, settings in flat.items():
            runs[repr(settings[key]) if key in settings else "not set"].append(name)
        if len(runs) > 1:
            lines.append(f"  {key}: " + "; ".join(f"{value} in {first_of(names)}" for value, names in runs.items()))
    if lines:
        raise NotComparableError("These runs differ in more than the algorithm and the seed:\n" + "\n".join(lines))


class Variant(NamedTuple):
    """An algorithm or a recipe of a comparison, with the options that differ from its file.

    The options include choices of other groups (`COMPARED_GROUPS`).
    """

    group: str
    name: str
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """The name of its runs' folders. A recipe gets a prefix, since some recipes share an algorithm's name."""
        name = f"recipe_{self.name}" if self.group == "recipe" else self.name
        return "-".join([name, *(f"{key}_{_words(value)}" for key, value in self.options.items())])

    @property
    def overrides(self) -> list[str]:
        option_overrides = (line for key, value in self.options.items() for line in _overrides(key, value))
        return [f"{self.group}={self.name}", *option_overrides]


def _overrides(key: str, value: Any) -> list[str]:
    """Return the overrides of an option of the algorithm, or of a choice of another group with its options."""
    if key not in COMPARED_GROUPS:
        return [f"algo.{key}={written(value)}"]
    if isinstance(value, str):
        return [f"{key}={value}"]
    if not isinstance(value, Mapping) or "name" not in value:
        raise ValueError(f"algos: {key}={value} names no {key}. Write {{name: ..., option: 1}}, or a name alone.")
    option_overrides = [f"{key}.{option}={written(setting)}" for option, setting in value.items() if option != "name"]
    return [f"{key}={value['name']}", *option_overrides]


def _words(value: Any) -> str:
    """Return an option's value for a label."""
    if isinstance(value, Mapping):
        parts = [f"{key}_{option}" for key, option in value.items() if key != "name"]
        return "-".join([str(value["name"]), *parts] if "name" in value else parts)
    return str(value)


def variants(algos: str | Sequence[str | Mapping[str, Any]]) -> list[Variant]:
    """Return the variants that `algos` means: names, or mappings with a `name` or a `recipe` and options.

    Options are those of the algorithm, and choices of other groups: {name: hgpo, history_length: 1, objective: gspo},
    {recipe: dapo}. A single name needs no list.

    Raises:
        ValueError: no entry, one without a name, or a repeated one.
    """
    listed = []
    for entry in as_list(algos):
        options = dict(entry) if isinstance(entry, Mapping) else {"name": str(entry)}
        if "name" in options and "recipe" in options:
            raise ValueError(f"algos: {options} names an algorithm and a recipe, which has one: leave one out.")
        if "name" not in options and "recipe" not in options:
            raise ValueError(
                f"algos: {options} names no algorithm. Write {{name: hgpo, history_length: 1}}, for example, or "
                "{recipe: dapo}."
            )
        group, key = ("algo", "name") if "name" in options else ("recipe", "recipe")
        name = options.pop(key)
        if not isinstance(name, str):
            raise ValueError(f"algos: {key}={name}: expected one name. Another algorithm is another entry of the list.")
        listed.append(Variant(group, name, options))
    labels = [variant.label for variant in listed]
    if longest := next((label for label in labels if len(label.encode()) > LONGEST_LABEL), None):
        raise ValueError(
            f"algos: {longest[:60]}... has {len(longest.encode())} bytes, and names the folders of runs, which can "
            f"have {LONGEST_LABEL}. Leave out options that have their defaults, or register it under a name."
        )
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"algos={labels}: give at least one, and each of them once.")
    return listed
