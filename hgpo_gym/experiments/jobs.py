"""Runs as jobs that something else queues and places on machines: a run a job."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from hgpo_gym.experiments.pool import Train, log_to
from hgpo_gym.trainers.settings import RunSettings

POLL_SECONDS = 1.0


class Job(Protocol):
    """A run that is queued, going on, or at its end."""

    def done(self) -> bool: ...

    def how_it_failed(self) -> str:
        """Of a job that is done; empty if it did not."""

    def cancel(self) -> None: ...


Submit = Callable[[Train, RunSettings], Job]
"""Queues the training of a run."""


def train_all_as_jobs(
    runs: Mapping[Path, RunSettings],
    train: Train,
    watch: Callable[[Sequence[Path]], None],
    *,
    submit: Submit,
    jobs: int,
) -> dict[Path, str]:
    """Train the runs, `jobs` at a time; what a run prints goes to log.txt in its directory.

    Whatever ends this process, Ctrl-C among it, cancels the jobs that it waits for.

    Args:
        runs: the settings of each run directory.
        train: what a job calls.
        watch: called now and then with the runs that are queued or running.
        submit: what queues a job.
        jobs: how many these are at most.

    Returns how the runs ended that failed.
    """
    waiting = list(runs)
    running: dict[Path, Job] = {}
    failed: dict[Path, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                running[run] = submit(train, runs[run])
            watch(list(running))
            ended = [run for run, job in running.items() if job.done()]
            for run in ended:
                if how := running.pop(run).how_it_failed():
                    failed[run] = how
                    run.mkdir(parents=True, exist_ok=True)
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
                traceback.print_exc()  # who runs the job keeps it in a log of its own
                raise
        return ""


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What this process and its libraries print inside is appended to a file; the words of who runs the job are not."""
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
