"""Leagues: the same algorithms and seeds in several environments, and one report on all of them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgpo_gym.config.compose import ConfigError
from hgpo_gym.experiments.compare import train_and_report
from hgpo_gym.experiments.plan import (
    COMMAND_KEYS,
    PlannedRun,
    as_list,
    check_no_duplicates,
    of_every_run,
    plan,
    written,
)
from hgpo_gym.experiments.pool import Train
from hgpo_gym.progress import Progress
from hgpo_gym.suggest import unknown_name


def run_league(config: Mapping[str, Any], overrides: Sequence[str], train: Train, progress: Progress) -> None:
    """Compare the algorithms in every environment, then report on all runs in `out`; see `run_comparison`.

    All runs of one seed are trained before the next seed, so that an interrupted league has complete comparisons. If
    algorithms, seeds or environments are added later, only the missing runs are trained.

    Args:
        config: the configuration of the command `league`.
        overrides: its overrides; all runs share them, after those of their environment.
        train: trains one run, see `pool.Train`.
        progress: shows the progress and the results.

    Raises:
        ValueError: see `environments` and `plan`. Also if the command sets an `env` although an environment of the
            league sets one, or if two environments become equal.
        NotComparableError, RunFailedError: see `run_comparison`.
    """
    out, shared = Path(config["out"]), of_every_run(overrides)
    runs: list[PlannedRun] = []
    for name, env_overrides in environments(config["environments"], config["only"]).items():
        _check_env(name, env_overrides, shared)
        try:
            runs += plan(config["algos"], config["seeds"], out / name, [*env_overrides, f"env_name={name}", *shared])
        except ConfigError as error:
            raise ConfigError(
                f"In the league's environment {name!r}, which sets {' '.join(env_overrides)}: {error}"
            ) from error
    check_no_duplicates(runs)
    runs.sort(key=lambda run: run.settings.seed)
    train_and_report(runs, config, train, progress)


def _check_env(name: str, env_overrides: Sequence[str], shared: Sequence[str]) -> None:
    """Raise ValueError if the command would replace an environment of the league by another one."""
    listed, given = (
        [override for override in overrides if override.startswith("env=")] for overrides in (env_overrides, shared)
    )
    if listed and given and listed[-1] != given[-1]:
        raise ValueError(
            f"{given[-1]}: the league's environment {name!r} has its own, {listed[-1]}. To play yours, list it: "
            f"'environments=[{{name: mine, env: {given[-1].removeprefix('env=')}}}]'."
        )


def environments(listed: Sequence[Mapping[str, Any]], only: str | Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return the overrides of each environment in `environments`, by its name; with `only`, of the named ones.

    Raises:
        ValueError: no environment, one without a name, a repeated name or one that no folder can have, settings that
            the league sets for all, or an unknown name in `only`.
    """
    by_name: dict[str, list[str]] = {}
    for entry in listed or ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ValueError(f"environments: {entry} has no name. Write {{name: my_maze, env: signpost_maze}}.")
        if entry["name"] in by_name:
            raise ValueError(f"environments: two are called {entry['name']!r}.")
        if Path(entry["name"]).name != entry["name"]:
            raise ValueError(f"environments: {entry['name']!r} is the name of a folder, too: leave / and .. out.")
        if of_the_league := [key for key in entry if str(key).split(".")[0] in (*COMMAND_KEYS, "env_name")]:
            raise ValueError(
                f"environments: {entry['name']!r} sets {', '.join(of_the_league)}, which the league sets for all of "
                "them. Say it beside environments=."
            )
        overrides = [f"{key}={_setting(value)}" for key, value in entry.items() if key != "name"]
        by_name[entry["name"]] = of_every_run(overrides)
    if not by_name:
        raise ValueError(f"environments={listed}: name at least one, [{{name: my_maze, env: signpost_maze}}].")
    selected = list(by_name) if only is None else [str(name) for name in as_list(only)]
    if not selected:
        raise ValueError(f"only={only}: name at least one environment of the league, or null for all of them.")
    for name in selected:
        if name not in by_name:
            raise ValueError(unknown_name("environment of the league", name, by_name))
    return {name: overrides for name, overrides in by_name.items() if name in selected}


def _setting(value: Any) -> str:
    """Return a value as a command line has it: the choice of a group is a word without quotes."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w./+-]+", value) else written(value)
