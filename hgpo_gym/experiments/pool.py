"""Runs in worker processes. A process trains several runs in turn, so that it imports libraries only once."""

import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hgpo_gym.files import NotPlainError, open_plain
from hgpo_gym.picklable_errors import describe_failed_start
from hgpo_gym.plain_text import print_any_text

POLL_SECONDS = 0.5
VISIBLE = "CUDA_VISIBLE_DEVICES"

RunConfig = Mapping[str, Any]
"""The resolved configuration of a run: plain data, which any process can read."""
Train = Callable[[RunConfig], None]
"""A module-level function that trains one run in a worker. SystemExit with a status other than 0 is a failure."""


def train_all(
    runs: Mapping[Path, RunConfig],
    jobs: int,
    train: Train,
    watch: Callable[[Sequence[Path]], None],
    gpus: Sequence[str] = (),
) -> dict[Path, str]:
    """Train the runs, `jobs` at a time; a run's output goes to log.txt in its directory.

    A run that fails does not stop the others, even if its process dies.

    Args:
        runs: the configuration of each run directory.
        jobs: the number of worker processes.
        train: the function that workers call.
        watch: called regularly with the running runs.
        gpus: the names of the GPUs, spread evenly over the workers. If empty, workers see the GPUs of this process.

    Returns the reason of each failed run.
    """
    waiting = list(runs)
    workers: list[_PoolWorker] = []
    failed: dict[Path, str] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                gpu_counts = Counter(worker.gpu for worker in workers)
                workers.append(_PoolWorker(train, min(gpus, key=lambda gpu: gpu_counts[gpu], default=None)))
                run = waiting.pop(0)
                workers[-1].begin(run, runs[run])
            watch([worker.run for worker in workers])
            ready = wait([worker.connection for worker in workers], timeout=POLL_SECONDS)
            # A copy, because the loop removes finished workers.
            for worker in [worker for worker in workers if worker.connection in ready]:
                run = worker.run
                alive, reason = worker.result()
                if reason:
                    failed[run] = reason
                if alive and waiting:
                    run = waiting.pop(0)
                    worker.begin(run, runs[run])
                else:
                    workers.remove(worker)
                    worker.stop()
    finally:
        for worker in workers:
            worker.interrupt()
        for worker in workers:
            worker.stop()
    return failed


class _PoolWorker:
    """A process with its current run."""

    run: Path

    def __init__(self, train: Train, gpu: str | None):
        context = multiprocessing.get_context("spawn")
        self.gpu = gpu
        self.connection, child_connection = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(child_connection, train), name="hgpo_gym-run")
        with _seeing(gpu), _interrupts_held_back():
            self.process.start()
        # Without this, recv() would never raise EOFError when the process dies.
        child_connection.close()

    def begin(self, run: Path, config: RunConfig) -> None:
        self.run = run
        self.connection.send((run, config))

    def result(self) -> tuple[bool, str]:
        """Return whether the process is alive, and the reason of a failed run.

        Raises RuntimeError if the process failed to start.
        """
        try:
            status = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            if (self.process.exitcode or 0) > 0 and not (self.run / "log.txt").exists():
                raise RuntimeError(describe_failed_start(self.process.exitcode or 0)) from None
            return False, f"its process ended with exit code {self.process.exitcode}"
        return True, f"it ended with status {status}" if status else ""

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does: the run saves a checkpoint."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def stop(self) -> None:
        self.connection.close()  # the worker ends at EOF
        self.process.join()


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process sees, as in CUDA_VISIBLE_DEVICES."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get(VISIBLE, "").split(",")
    return names[:count] if len(names) >= count > 0 and names[0] else [str(number) for number in range(count)]


@contextmanager
def _seeing(gpu: str | None) -> Iterator[None]:
    """Make this GPU the only visible one for processes that the block starts; None changes nothing."""
    # CUDA reads the variable once, when it is initialized; a spawned child inherits it.
    previous = os.environ.get(VISIBLE)
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    try:
        yield
    finally:
        if gpu is not None:
            os.environ.pop(VISIBLE)
            os.environ |= {} if previous is None else {VISIBLE: previous}


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C in processes that are started inside, until they unblock it; otherwise imports end in tracebacks."""
    resource_tracker.ensure_running()  # start() would start it, and unblock signals
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _serve(connection: Connection, train: Train) -> None:
    """Train the runs that the parent sends, until it hangs up or interrupts."""
    try:
        # A spawned process inherits the mask of `_interrupts_held_back`.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while True:
            run, config = connection.recv()
            status: object = 0
            try:
                log_to(run / "log.txt")
                train(config)
            except SystemExit as error:
                status = error.code
            except NotPlainError as error:
                print(error, file=sys.stderr)
                status = 2
            connection.send(status)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return


def log_to(path: Path) -> None:
    """Append the further output of this process and its libraries to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    print_any_text("utf-8")
    with open_plain(path, append=True) as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
