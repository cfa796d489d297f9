"""Runs as jobs of Slurm, by submitit: a run a job."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo_gym.experiments.pool import Train, log_to
from hgpo_gym.trainers.settings import RunSettings

if TYPE_CHECKING:
    import submitit

POLL_SECONDS = 1.0


def train_all_by_submitit(
    runs: Mapping[Path, RunSettings],
    train: Train,
    watch: Callable[[Sequence[Path]], None],
    *,
    jobs: int,
    cluster: str | None,
    parameters: Mapping[str, Any],
    folder: Path,
) -> dict[Path, str]:
    """Train the runs, `jobs` at a time; what a run prints goes to log.txt in its directory.

    Whatever ends this process, Ctrl-C among it, cancels the jobs that it waits for.

    Args:
        runs: the settings of each run directory.
        train: what a job calls.
        watch: called now and then with the runs that are queued or running.
        jobs: how many these are at most.
        cluster: see submitit's AutoExecutor.
        parameters: what a job asks for.
        folder: where submitit keeps what it sends to jobs, and what they print besides.

    Returns how the runs ended that failed.

    Raises:
        ModuleNotFoundError: submitit is missing.
        ValueError: it does not know the cluster, or a parameter.
    """
    executor = _executor(cluster, parameters, folder)
    waiting = list(runs)
    running: dict[Path, submitit.Job[str]] = {}
    failed: dict[Path, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                running[run] = executor.submit(TrainingJob(train), runs[run])
            watch(list(running))
            ended = [run for run, job in running.items() if job.done()]
            for run in ended:
                if how := _how_it_failed(running.pop(run)):
                    failed[run] = how
                    (run / "log.txt").touch()  # the job may not have come to it
            if not ended:
                time.sleep(POLL_SECONDS)
    finally:
        for job in running.values():
            job.cancel()
    return failed


class TrainingJob:
    """What a job runs; it is sent there."""

    def __init__(self, train: Train):
        self.train = train

    def __call__(self, settings: RunSettings) -> str:
        """Train one run. Returns how it failed; empty if it did not."""
        with _logged(settings.run_dir / "log.txt"):
            try:
                self.train(settings)
            except SystemExit as ended:
                return f"it ended with status {ended.code}" if ended.code else ""
            except Exception:
                traceback.print_exc()  # submitit keeps it in a log of its own
                raise
        return ""

    def checkpoint(self, settings: RunSettings) -> "submitit.helpers.DelayedSubmission":
        """What is queued when Slurm stops the job: the same, which goes on with the run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, settings)


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What this process and its libraries print inside is appended to a file; submitit's own words are not."""
    kept = [(stream.fileno(), os.dup(stream.fileno())) for stream in (sys.stdout, sys.stderr)]
    log_to(path)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for own, before in kept:
            os.dup2(before, own)
            os.close(before)


def _executor(cluster: str | None, parameters: Mapping[str, Any], folder: Path) -> "submitit.AutoExecutor":
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'launcher=submitit needs the package submitit: pip install "hgpo_gym[submitit]"', name="submitit"
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(name="hgpo_gym", **parameters)
    except (ValueError, NameError) as error:
        raise ValueError(f"launcher.cluster={cluster}, launcher.parameters={dict(parameters)}: {error}") from error
    return executor


def _how_it_failed(job: "submitit.Job[str]") -> str:
    """Empty if it did not."""
    return job.result() if job.exception() is None else f"its job {job.job_id} failed"
