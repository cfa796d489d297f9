"""Comparisons: one run for each algorithm and seed, with all other settings equal."""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hgpo_gym.analysis.report import write_report
from hgpo_gym.experiments.jobs import train_all_as_jobs
from hgpo_gym.experiments.plan import PlannedRun, of_every_run, plan
from hgpo_gym.experiments.pool import RunConfig, Train, train_all, visible_gpus
from hgpo_gym.experiments.ray_tasks import RaySettings, ray_tasks
from hgpo_gym.experiments.slurm_jobs import SlurmSettings, slurm_jobs
from hgpo_gym.files import open_plain
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import latest_metrics
from hgpo_gym.section import SettingsSection, check_read, parse_section
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.code_used import changed_code_warnings
from hgpo_gym.trainers.run import code_of, make_learner

LAUNCHERS: Mapping[str, type[SettingsSection]] = {
    "processes": SettingsSection,
    "submitit": SlurmSettings,
    "ray": RaySettings,
}
"""The settings class of each `launcher`; `processes` has no settings."""


class RunFailedError(RuntimeError):
    """Runs of the comparison failed; the message names them and their logs."""


def run_comparison(config: Mapping[str, Any], overrides: Sequence[str], train: Train, progress: Progress) -> None:
    """Train every algorithm with every seed, then write the report into `out` and show its headlines.

    Finished runs are skipped, and interrupted runs resume. With `jobs=0` nothing is trained or imitated: the commands
    of the unfinished runs are printed.

    Args:
        config: the configuration of the command `compare`.
        overrides: the overrides of that configuration, which all runs share.
        train: trains one run, see `pool.Train`.
        progress: shows the progress and the results.

    Raises:
        ValueError, NotComparableError: see `plan`.
        RunFailedError: runs failed; all others are finished.
    """
    runs = plan(config["algos"], config["seeds"], Path(config["out"]), of_every_run(overrides))
    train_and_report(runs, config, train, progress)


def train_and_report(runs: Sequence[PlannedRun], config: Mapping[str, Any], train: Train, progress: Progress) -> None:
    """Train the unfinished runs in order, `jobs` at a time, then report on all runs; see `run_comparison` for `jobs=0`.

    Args:
        runs: all runs, finished or not.
        config: `out`, `jobs` and `launcher` of the command.
        train, progress: see `run_comparison`.

    Raises:
        ValueError: a run needs several processes, which only its printed command can start.
        OSError: the folder of a run cannot be written; no run is trained.
        RunFailedError: see `run_comparison`.
    """
    out, jobs = Path(config["out"]), config["jobs"]
    options = {key: value for key, value in config["launcher"].items() if key != "name"}
    name = config["launcher"]["name"]
    if name not in LAUNCHERS:
        raise ValueError(unknown_name("launcher", name, LAUNCHERS))
    launcher = parse_section(LAUNCHERS[name], options, "launcher.")
    if jobs != 0 and (several := next((run for run in runs if run.in_several_processes), None)):
        raise ValueError(
            f"distributed={several.settings.distributed}: a comparison trains every run in one process. Set "
            "distributed=none, or jobs=0, which prints the commands that train each run in several."
        )
    unfinished = [run for run in runs if not run.done]
    _check(unfinished, progress)
    for line in changed_code_warnings({run.settings.run_dir: code_of(run.settings) for run in runs}):
        progress.line(line)
    if unfinished and jobs == 0:
        print("\n".join(run.command for run in unfinished))
        return
    if unfinished:
        for run in unfinished:
            # Before the first run starts, so that a bad path does not fail hours later.
            _check_can_be_written(run.settings.run_dir)
        with _launcher(launcher, jobs, unfinished, out) as (launch, at_a_time):
            _share_initial_weights(unfinished, progress)
            _train(unfinished, launch, at_a_time, train, progress)
    page = write_report([run.settings.run_dir for run in runs], out, console=progress.console)
    progress.line(f"Report: {page}")


def _check_can_be_written(folder: Path) -> None:
    """Raise OSError if a folder does not exist and cannot be created, or is not writable."""
    path = folder.absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        reason = "cannot be written" if existing.is_dir() else "is not a folder"
        raise OSError(f"Cannot write into {folder}: {existing} {reason}. Choose another folder by out=...")


def _check(runs: Collection[PlannedRun], progress: Progress) -> None:
    """Raise ValueError for settings with which the first run of an algorithm would fail before it begins, and for
    settings of all runs that none reads."""
    # Runs that differ only in the seed and the directory need one check.
    by_algorithm = {json.dumps({**run.settings.resolved, "seed": 0, "run_dir": ""}): run for run in runs}
    for run in by_algorithm.values():
        make_learner(run.settings, progress).check()
    shared = [override for run in runs for override in run.overrides]
    check_read(shared, *(run.settings.unread for run in by_algorithm.values()))


def _share_initial_weights(runs: Collection[PlannedRun], progress: Progress) -> None:
    """Create the initial weights of the runs in the cache, once for each comparison and kind of learner."""
    starts = {(run.settings.run_dir.parent, run.settings.learner.name): run for run in runs}
    for run in starts.values():
        learner = make_learner(run.settings, progress)
        learner.start()
        learner.close()


def _takes_any_gpu(run: PlannedRun) -> bool:
    """Return True if the run uses a GPU when one is available, without a choice of which."""
    return run.settings.resolved["model"].get("device") in ("auto", "cuda")


def _jobs(jobs: int | None, runs: Collection[PlannedRun], gpus: Collection[str]) -> int:
    """Return `jobs`, or one for each GPU that the runs can use, or as many as fit on the cores."""
    if jobs is not None:
        return _at_least_one(jobs)
    if gpus:
        return min(len(runs), len(gpus))
    cores = os.cpu_count() or 1
    threads = max(run.settings.model.threads or cores for run in runs)
    return max(1, min(len(runs), cores // threads))


def _at_least_one(jobs: int) -> int:
    if not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs={jobs}: must be 0 or more, a whole number, or null for as many as fit.")
    return jobs


Launch = Callable[[Mapping[Path, RunConfig], Train, Callable[[Sequence[Path]], None]], dict[Path, str]]
"""Trains runs; see `pool.train_all`."""


@contextmanager
def _launcher(
    launcher: SettingsSection, jobs: int | None, unfinished: Sequence[PlannedRun], out: Path
) -> Iterator[tuple[Launch, int]]:
    """Yield a function that trains the runs, and the number of runs at a time."""
    if isinstance(launcher, RaySettings):
        submitted = ray_tasks(launcher)
    elif isinstance(launcher, SlurmSettings):
        submitted = slurm_jobs(launcher, folder=out / ".jobs")
    else:
        gpus = visible_gpus() if all(map(_takes_any_gpu, unfinished)) else []
        limit = _jobs(jobs, unfinished, gpus)
        yield lambda runs, train, watch: train_all(runs, limit, train, watch, gpus), limit
        return
    limit = len(unfinished) if jobs is None else _at_least_one(jobs)
    with submitted as submit:
        yield partial(train_all_as_jobs, submit=submit, jobs=limit), limit


def _train(runs: Sequence[PlannedRun], launch: Launch, jobs: int, train: Train, progress: Progress) -> None:
    """Train the runs, with one progress bar over the iterations of all."""
    iterations = {run.settings.run_dir: run.settings.trainer.iterations for run in runs}
    begun: set[Path] = set()
    with progress.stage(f"{len(runs)} runs, {jobs} at a time") as report_progress:

        def watch(running: Sequence[Path]) -> None:
            begun.update(running)
            latest = {run: metrics for run in running if (metrics := latest_metrics(run))}
            completed = sum(iterations[run] for run in begun.difference(running))
            completed += sum(metrics["iteration"] for metrics in latest.values())
            labels = [f"{run.name}: {metrics['success']:.0%}" for run, metrics in latest.items()]
            report_progress(completed, sum(iterations.values()), "  ".join(labels))

        failed = launch({run.settings.run_dir: run.settings.resolved for run in runs}, train, watch)
    if failed:
        raise RunFailedError(
            f"{len(failed)} of {len(runs)} runs failed; the same command tries them again, and keeps the others.\n"
            + "\n".join(
                f"  {run}: {reason}: {_last_line(run)} (see {run / 'log.txt'})" for run, reason in failed.items()
            )
        )


def _last_line(run: Path) -> str:
    with open_plain(run / "log.txt") as log:
        lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
