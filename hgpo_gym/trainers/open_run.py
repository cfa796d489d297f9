"""Open a run directory for training: a new one, or an existing one to resume with the same settings and tasks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from hgpo_gym.runs.checkpoints import Checkpoints
from hgpo_gym.runs.directory import (
    AGGREGATION,
    MAY_CHANGE,
    RunDirectory,
    flatten,
    iterations_at_last_end,
    read_config,
)
from hgpo_gym.trainers.update.objectives import OBJECTIVES, preferred_aggregation

DefaultSettings = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns the default settings for the choices in some settings."""


def open_run(
    run_dir: Path,
    resume: Literal["never", "auto", "must"],
    resolved: Mapping[str, Any],
    iterations: int,
    defaults: DefaultSettings = lambda _: {},
) -> RunDirectory:
    """Return the run directory for these settings, new or to be resumed. Nothing is written yet.

    Args:
        defaults: gives the values of settings that a run lacks because they were added after it began.

    Raises:
        FileExistsError: the directory holds a run and `resume` is never, or it is a folder of other runs.
        FileNotFoundError: it holds no checkpoint and `resume` is must.
        ValueError: it holds a run with other settings, and the message names each difference; or it holds a run with
            more iterations than these settings ask for.
    """
    run = RunDirectory(run_dir)
    saved = run.path / "config.yaml"
    newest = Checkpoints(run.checkpoint_path).newest_iteration
    has_checkpoint = newest is not None
    if resume == "never" and (has_checkpoint or saved.exists()):
        raise FileExistsError(f"{run.path} already holds a run. Go on with it by resume=auto, or set another run_dir.")
    if resume == "must" and not has_checkpoint:
        raise FileNotFoundError(f"resume=must, but {run.checkpoint_path} holds no checkpoint: expected iteration_*.")
    if saved.exists():
        _check_same(read_config(run.path), resolved, run.path, defaults)
    elif other := next(run.path.glob("*/config.yaml"), None):
        raise FileExistsError(
            f"{run.path} is a folder of runs, such as {other.parent.name}, with their report. Set another folder, such "
            f"as run_dir={run.path / 'run'}."
        )
    _check_not_beyond(max(newest or 0, iterations_at_last_end(run.path)), iterations, run.path)
    return run


def _with_aggregation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as flat keys. `trainer.loss_aggregation=null` becomes the aggregation of the run's
    objective."""
    flat = flatten(config)
    objective = flat.get("objective.name", "")
    if flat.get(AGGREGATION[0]) is None and objective in OBJECTIVES:  # a plugin may be missing now
        flat[AGGREGATION[0]] = preferred_aggregation(objective)
    return flat


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], run_dir: Path, defaults: DefaultSettings) -> None:
    old, new = _with_aggregation(before), _with_aggregation(now)
    if added := new.keys() - old.keys():
        old |= {key: value for key, value in flatten(defaults(now)).items() if key in added}
    different = [
        f"  {key}: {old.get(key)!r} in the run, {new.get(key)!r} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not key.startswith(MAY_CHANGE)
    ]
    if different:
        raise ValueError(
            f"The run in {run_dir} has other settings. Name another folder, run_dir=... (out=... of a "
            "comparison), or give it the same:\n" + "\n".join(different)
        )


def check_same_tasks(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raise ValueError if a resumed run would get other tasks than before, although the settings are equal.

    Args:
        before, now: the tasks of `training` and `evaluation`, see `hgpo_gym.trainers.environments.Tasks`.
        path: the run directory, for the message.
    """
    for use, previous in before.items():
        if previous != now[use]:
            old_tasks, new_tasks = (f"{tasks['tasks']:,} of split {tasks['split']}" for tasks in (previous, now[use]))
            raise ValueError(
                f"The run in {path} had other tasks for {use}: {old_tasks}, and with the data that is "
                f"there now {new_tasks}. "
                "Bring back what was there (hgpo-gym data, $ALFWORLD_DATA, $WEBSHOP_DATA), or name another folder, "
                "run_dir=... (out=... of a comparison)."
            )


def _check_not_beyond(completed: int, iterations: int, run_dir: Path) -> None:
    """Raise ValueError if the run already has more iterations than the settings ask for."""
    if completed > iterations:
        raise ValueError(
            f"The run in {run_dir} has {completed} iterations already, "
            f"more than trainer.iterations={iterations}. "
            f"Ask for at least {completed}, or name another folder, run_dir=... (out=... of a comparison)."
        )
