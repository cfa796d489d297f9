"""Runs as jobs that another system queues and places on machines, one run for each job."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from hgpo_gym.experiments.pool import RunConfig, Train, log_to
from hgpo_gym.files import open_plain

POLL_SECONDS = 1.0


class Job(Protocol):
    """A run that is queued, running or finished."""

    def done(self) -> bool: ...

    def how_it_failed(self) -> str:
        """Return the failure of a finished job; empty if it succeeded."""

    def cancel(self) -> None: ...


Submit = Callable[[Train, RunConfig], Job]
"""A function that queues the training of a run."""


def train_all_as_jobs(
    runs: Mapping[Path, RunConfig],
    train: Train,
    watch: Callable[[Sequence[Path]], None],
    *,
    submit: Submit,
    jobs: int,
) -> dict[Path, str]:
    """Train the runs, `jobs` at a time; a run's output goes to log.txt in its directory.

    If this process ends early, for example by Ctrl-C, the jobs that it waits for are cancelled.

    Args:
        runs: the configuration of each run directory.
        train: the function that a job calls.
        watch: called regularly with the runs that are queued or running.
        submit: queues a job.
        jobs: the most jobs that are queued or running at a time.

    Returns the reason of each failed run.
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
            # Listed first, because the loop removes entries from `running`.
            ended = [run for run, job in running.items() if job.done()]
            for run in ended:
                if reason := running.pop(run).how_it_failed():
                    failed[run] = reason
                    run.mkdir(parents=True, exist_ok=True)
                    open_plain(run / "log.txt", append=True).close()  # the job may have failed before it wrote one
            if not ended:
                time.sleep(POLL_SECONDS)
    finally:
        for job in running.values():
            job.cancel()
    return failed


class TrainingJob:
    """A job's callable; it is pickled and sent to the job."""

    def __init__(self, train: Train):
        self.train = train

    def __call__(self, config: RunConfig) -> str:
        """Train one run. Returns the reason of a failure; empty if it succeeded."""
        with _logged(Path(config["run_dir"]) / "log.txt"):
            try:
                self.train(config)
            except SystemExit as ended:
                return f"it ended with status {ended.code}" if ended.code else ""
            except Exception:
                traceback.print_exc()  # the job system logs it elsewhere; log.txt needs it, too
                raise
        return ""


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Append the output of this process and its libraries to a file while inside the block."""
    # Libraries in C write to the file descriptors, so that replacing sys.stdout would not be enough.
    saved = [(stream.fileno(), os.dup(stream.fileno())) for stream in (sys.stdout, sys.stderr)]
    log_to(path)
    try:
        yield
    finally:
        # Python's buffers must be empty before their descriptors change.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor, duplicate in saved:
            os.dup2(duplicate, descriptor)
            os.close(duplicate)
