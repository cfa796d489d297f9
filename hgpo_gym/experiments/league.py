"""Leagues: the same algorithms and seeds in several environments, and one report on all of them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgpo_gym.config.compose import ConfigError
from hgpo_gym.experiments.compare import train_and_report
from hgpo_gym.experiments.plan import OWN_KEYS, PlannedRun, as_list, check_no_duplicates, of_every_run, plan, written
from hgpo_gym.experiments.pool import Train
from hgpo_gym.progress import Progress
from hgpo_gym.suggest import unknown_name


def run_league(config: Mapping[str, Any], overrides: Sequence[str], train: Train, progress: Progress) -> None:
    """Compare the algorithms in every environment, then report on all runs in `out`; see `run_comparison`.

    All of them are trained with one seed before any is with the next, so that a league that is broken off has compared
    what it compares. Algorithms, seeds and environments that are added later play what is missing.

    Args:
        config: of the command `league`.
        overrides: what it was composed from; the runs share them, on top of their environment's own.
        train: trains one run, see `pool.Train`.
        progress: where it and the results are shown.

    Raises:
        ValueError: see `environments` and `plan`, the command sets an `env` where an environment has its own, or leaves
            two environments the same.
        NotComparableError, RunFailedError: see `run_comparison`.
    """
    out, shared = Path(config["out"]), of_every_run(overrides)
    runs: list[PlannedRun] = []
    for name, own in environments(config["environments"], config["only"]).items():
        _check_env(name, own, shared)
        try:
            runs += plan(config["algos"], config["seeds"], out / name, [*own, f"env_name={name}", *shared])
        except ConfigError as error:
            raise ConfigError(f"In the league's environment {name!r}, which sets {' '.join(own)}: {error}") from error
    check_no_duplicates(runs)
    runs.sort(key=lambda run: run.settings.seed)
    train_and_report(runs, config, train, progress)


def _check_env(name: str, own: Sequence[str], shared: Sequence[str]) -> None:
    """Raises ValueError where the command would put another environment in the place of one of the league."""
    theirs, given = ([word for word in words if word.startswith("env=")] for words in (own, shared))
    if theirs and given and theirs[-1] != given[-1]:
        raise ValueError(
            f"{given[-1]}: the league's environment {name!r} has its own, {theirs[-1]}. To play yours, list it: "
            f"'environments=[{{name: mine, env: {given[-1].removeprefix('env=')}}}]'."
        )


def environments(listed: Sequence[Mapping[str, Any]], only: str | Sequence[str] | None = None) -> dict[str, list[str]]:
    """What `environments` means: the overrides of each, by its name; with `only`, of those that it names.

    Raises:
        ValueError: none, one without a name, a name twice or that is no folder's, settings that are the league's, or a
            name that none has.
    """
    found: dict[str, list[str]] = {}
    for entry in listed or ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ValueError(f"environments: {entry} has no name. Write {{name: my_maze, env: signpost_maze}}.")
        if entry["name"] in found:
            raise ValueError(f"environments: two are called {entry['name']!r}.")
        if Path(entry["name"]).name != entry["name"]:
            raise ValueError(f"environments: {entry['name']!r} is the name of a folder, too: leave / and .. out.")
        if of_the_league := [key for key in entry if str(key).split(".")[0] in (*OWN_KEYS, "env_name")]:
            raise ValueError(
                f"environments: {entry['name']!r} sets {', '.join(of_the_league)}, which the league sets for all of "
                "them. Say it beside environments=."
            )
        own = [f"{key}={_setting(value)}" for key, value in entry.items() if key != "name"]
        found[entry["name"]] = of_every_run(own)
    if not found:
        raise ValueError(f"environments={listed}: name at least one, [{{name: my_maze, env: signpost_maze}}].")
    chosen = list(found) if only is None else [str(name) for name in as_list(only)]
    if not chosen:
        raise ValueError(f"only={only}: name at least one environment of the league, or null for all of them.")
    for name in chosen:
        if name not in found:
            raise ValueError(unknown_name("environment of the league", name, found))
    return {name: own for name, own in found.items() if name in chosen}


def _setting(value: Any) -> str:
    """On a command line, where the choice of a group is a word without quotes."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w./+-]+", value) else written(value)
