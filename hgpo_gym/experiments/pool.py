"""Runs in worker processes: a process trains one run after the other, so that its imports are paid once."""

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

from hgpo_gym.picklable_errors import describe_failed_start
from hgpo_gym.plain_text import print_any_text
from hgpo_gym.trainers.settings import RunSettings

POLL_SECONDS = 0.5
VISIBLE = "CUDA_VISIBLE_DEVICES"

Train = Callable[[RunSettings], None]
"""Trains one run; a module-level function, called in a worker. SystemExit with a status other than 0 is a failure."""


def train_all(
    runs: Mapping[Path, RunSettings],
    jobs: int,
    train: Train,
    watch: Callable[[Sequence[Path]], None],
    gpus: Sequence[str] = (),
) -> dict[Path, str]:
    """Train the runs, `jobs` at a time; what a run prints goes to log.txt in its directory.

    A run that fails does not keep the others from going on, not even if it takes its process with it.

    Args:
        runs: the settings of each run directory.
        jobs: worker processes.
        train: what they call.
        watch: called now and then with the runs that are going on.
        gpus: the names of those that the workers share, as evenly as they can. None: all see what this process does.

    Returns how the runs ended that failed.
    """
    waiting = list(runs)
    workers: list[_PoolWorker] = []
    failed: dict[Path, str] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                taken = Counter(worker.gpu for worker in workers)
                workers.append(_PoolWorker(train, min(gpus, key=lambda gpu: taken[gpu], default=None)))
                run = waiting.pop(0)
                workers[-1].begin(run, runs[run])
            watch([worker.run for worker in workers])
            ready = wait([worker.connection for worker in workers], timeout=POLL_SECONDS)
            for worker in [worker for worker in workers if worker.connection in ready]:
                run, alive, ended = worker.run, *worker.result()
                if ended:
                    failed[run] = ended
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
    """A process, and the run that it is busy with."""

    run: Path

    def __init__(self, train: Train, gpu: str | None):
        context = multiprocessing.get_context("spawn")
        self.gpu = gpu
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, train), name="hgpo_gym-run")
        with _seeing(gpu), _interrupts_held_back():
            self.process.start()
        theirs.close()

    def begin(self, run: Path, settings: RunSettings) -> None:
        self.run = run
        self.connection.send((run, settings))

    def result(self) -> tuple[bool, str]:
        """Whether the process is still there, and how the run failed if it did. Raises RuntimeError if none began."""
        try:
            status = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            if (self.process.exitcode or 0) > 0 and not (self.run / "log.txt").exists():
                raise RuntimeError(describe_failed_start(self.process.exitcode or 0)) from None
            return False, f"its process ended with exit code {self.process.exitcode}"
        return True, f"it ended with status {status}" if status else ""

    def interrupt(self) -> None:
        """Ctrl-C: the run saves a checkpoint."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def stop(self) -> None:
        self.connection.close()  # the worker's cue to leave
        self.process.join()


def visible_gpus() -> list[str]:
    """The names of the GPUs that this process sees, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get(VISIBLE, "").split(",")
    return named[:count] if len(named) >= count > 0 and named[0] else [str(number) for number in range(count)]


@contextmanager
def _seeing(gpu: str | None) -> Iterator[None]:
    """Processes that are started inside see this GPU alone; None: what this process sees."""
    before = os.environ.get(VISIBLE)
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    try:
        yield
    finally:
        if gpu is not None:
            os.environ.pop(VISIBLE)
            os.environ |= {} if before is None else {VISIBLE: before}


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C reaches processes that are started inside when they let it through: their imports would end in
    tracebacks."""
    resource_tracker.ensure_running()  # where it is not, start() starts it, and lets signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, train: Train) -> None:
    """A worker process: trains what it is sent until the parent hangs up or interrupts it."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while True:
            run, settings = connection.recv()
            log_to(run / "log.txt")
            status: object = 0
            try:
                train(settings)
            except SystemExit as ended:
                status = ended.code
            connection.send(status)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return


def log_to(path: Path) -> None:
    """From now on what this process and its libraries print is appended to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    print_any_text("utf-8")
    with path.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
