"""Asynchronous rollouts: collect the next iteration during an update, by existing weights (`rollout.overlap`). The
episodes equal those of a rollout after the update; only the time differs.

A policy that generates with a copy of the weights (engine=vllm) runs in a thread, because its work happens outside
of Python. Any other policy runs in a separate process, with a separate model and environments.
"""

import copy
import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from hgpo_gym.interrupts import SIGNALS
from hgpo_gym.picklable_errors import describe_failed_start, picklable
from hgpo_gym.plugins import load_plugins
from hgpo_gym.policies.base import CopyingPolicy, Request, Response, Sampling, Stream
from hgpo_gym.policies.stale_weights import StaleWeights, put_weights
from hgpo_gym.policies.streams import open_stream
from hgpo_gym.rollouts.measures import TaskMeasures
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.rounds import Rounds
from hgpo_gym.rollouts.samplers import Outcomes
from hgpo_gym.trainers.learners.rollout_worker import RolloutWorker, assign_credit
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.settings import RunSettings

STOP = signal.SIGUSR1
"""The signal that ends the process in the middle of a rollout."""
STOP_SECONDS = 5.0
"""Seconds that the process has to end."""


class AsyncRolloutDiedError(RuntimeError):
    """The process that collects ahead has ended."""


class AsyncRollout(Protocol):
    """Collects ahead, one iteration at a time.

    Attributes:
        iteration: the iteration that is being collected or waits to be fetched; None if there is none.
    """

    iteration: int | None

    def submit(self, iteration: int, outcomes: Outcomes, past: StaleWeights) -> None:
        """Begin to collect an iteration by the oldest of the past weights.

        Raises:
            AsyncRolloutDiedError: the process has ended.
            Exception: the error that stopped its start.
        """

    def result(self) -> Rounds:
        """Wait for the iteration and return it. Raises the error of its collection, or AsyncRolloutDiedError."""

    def release(self) -> None:
        """Wait until other code can use the policy."""

    def close(self) -> None:
        """Stop at once."""


def async_rollout(worker: RolloutWorker, folder: Path, measured: TaskMeasures | None) -> AsyncRollout:
    """Return the asynchronous rollout of a worker.

    Args:
        worker: collects the other rollouts.
        folder: a saved model of the run; read until the first `submit`.
        measured: the sampler's measurements of the tasks.
    """
    if isinstance(worker.policy, CopyingPolicy):
        return AheadInThread(worker, worker.policy)
    return AheadInProcess(worker.run, folder, measured)


class AheadInProcess:
    """Collect in a separate process, see `async_rollout`."""

    def __init__(self, run: RunSettings, folder: Path, measured: TaskMeasures | None):
        self.iteration: int | None = None
        context = multiprocessing.get_context("spawn")
        self._connection, child_connection = context.Pipe()
        arguments = (child_connection, run.resolved, folder, measured, torch.get_num_threads())
        # Not a daemon: daemons cannot start processes, and its environments may need some.
        self._process = context.Process(target=_serve, args=arguments, name="hgpo_gym-ahead")
        self._process.start()
        child_connection.close()
        self._ready, self._sent = False, 0

    def submit(self, iteration: int, outcomes: Outcomes, past: StaleWeights) -> None:
        if not self._ready:
            # The child first reports that it is ready, or the error of its start.
            self._receive()
            self._ready = True
        weights = io.BytesIO()
        torch.save([weight.cpu() for weight in past.oldest], weights)
        try:
            self._connection.send((iteration, outcomes[self._sent :]))  # the process keeps the earlier ones
            self._sent = len(outcomes)
            self._connection.send_bytes(weights.getbuffer())
        except ConnectionError:
            raise self._died() from None
        self.iteration = iteration

    def result(self) -> Rounds:
        collected: Rounds = self._receive()
        self.iteration = None
        return collected

    def release(self) -> None:
        """See `AsyncRollout`. Nothing to wait for: the process has a separate policy."""

    def close(self) -> None:
        if self.iteration is not None and self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, STOP)
        self._connection.close()  # an idle process ends when its connection closes
        self._process.join(STOP_SECONDS)
        self._process.kill()
        self._process.join()

    def _receive(self) -> Any:
        try:
            response = self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._died() from None
        if isinstance(response, Exception):
            raise response
        return response

    def _died(self) -> AsyncRolloutDiedError:
        self._process.join()
        exit_code = self._process.exitcode or 0
        if not self._ready and exit_code > 0:
            return AsyncRolloutDiedError(describe_failed_start(exit_code, "set rollout.overlap=false"))
        return AsyncRolloutDiedError(
            f"The process that plays rollouts ahead has ended (exit code {self._process.exitcode}). Out of memory? It "
            "has a model and environments of its own. Set rollout.overlap=false, which changes no numbers."
        )


def _serve(
    connection: Connection, resolved: dict[str, Any], folder: Path, measured: TaskMeasures | None, threads: int
) -> None:
    """Run the child process: collect on request until the parent closes the connection or stops it."""
    for number in SIGNALS:
        # A terminal sends Ctrl-C to the whole process group. The parent decides when this process ends.
        signal.signal(number, _leave_to_parent)
    with ExitStack() as stack, suppress(EOFError, ConnectionError, NotWantedError):
        try:
            quiet_libraries(threads)
            load_plugins(resolved["plugins"])
            run = RunSettings.parse(resolved)
            policy = run.model.load(run.for_model, folder)
            worker = RolloutWorker(run, policy)
            stack.callback(worker.close)
            if measured:
                worker.sampler.measured = measured.values
        except Exception as error:  # noqa: BLE001 - the parent has to see every error
            error.add_note(_FAILURE_NOTE)
            connection.send(picklable(error))
            return
        signal.signal(STOP, _stop)
        connection.send(None)
        outcomes: list[Any] = []
        while True:
            iteration, later_outcomes = connection.recv()
            outcomes += later_outcomes
            put_weights(policy, torch.load(io.BytesIO(connection.recv_bytes()), weights_only=True))
            connection.send(_collect_or_error(worker, iteration, outcomes))


_FAILURE_NOTE = (
    "In the process that plays rollouts ahead (rollout.overlap), which makes its own environments and model. What a "
    "program registers by itself is not known there: put it in a file, and name that in plugins=[...]."
)


class NotWantedError(BaseException):
    """Ends a rollout whose result is no longer needed."""


def _leave_to_parent(_signal: int, _frame: object) -> None:
    """Ignore a signal that the parent handles. SIG_IGN would be inherited by programs that environments start."""


def _stop(_signal: int, _frame: object) -> None:
    raise NotWantedError


def _collect_or_error(worker: RolloutWorker, iteration: int, outcomes: Outcomes) -> Rounds | Exception:
    try:
        return _collect(worker, iteration, outcomes)
    except Exception as error:  # noqa: BLE001 - the parent raises every error
        return picklable(error)


def _collect(worker: RolloutWorker, iteration: int, outcomes: Outcomes) -> Rounds:
    def advantages(rollout: Rollout) -> np.ndarray:
        return assign_credit(worker.run.algo, worker.run.shaping, rollout)[1].values

    return worker.collect(iteration, outcomes, advantages)


class AheadInThread:
    """Collect in a thread, see `async_rollout`. The policy generates with a copy of the weights.

    Args:
        worker: lends its environments while it is idle.
        policy: the worker's policy.
    """

    def __init__(self, worker: RolloutWorker, policy: CopyingPolicy):
        self.iteration: int | None = None
        self._policy, self._stopped = policy, threading.Event()
        # A shallow copy: it shares the environments but has a stoppable policy.
        self._worker = copy.copy(worker)
        self._worker.policy = _Stoppable(policy, self._stopped)
        self._copy = ExitStack()
        self._thread = threading.Thread()
        self._collected: Rounds | BaseException

    def submit(self, iteration: int, outcomes: Outcomes, past: StaleWeights) -> None:
        """See `AsyncRollout`. It returns when the weights are copied."""
        with past.rollout_weights():
            self._copy.enter_context(self._policy.rollout_weights(nullcontext))
        self.iteration = iteration
        self._thread = threading.Thread(
            target=self._play, args=(iteration, outcomes), name="hgpo_gym-ahead", daemon=True
        )
        self._thread.start()

    def result(self) -> Rounds:
        self.release()
        self.iteration = None
        if isinstance(self._collected, BaseException):
            raise self._collected
        return self._collected

    def release(self) -> None:
        """See `AsyncRollout`. It waits until the rollout has ended."""
        if self.iteration is not None:
            self._thread.join()
            self._copy.close()

    def close(self) -> None:
        self._stopped.set()
        if self.iteration is not None:
            self._thread.join(STOP_SECONDS)  # a slow environment may take longer
            self._copy.close()

    def _play(self, iteration: int, outcomes: Outcomes) -> None:
        try:
            self._collected = _collect(self._worker, iteration, outcomes)
        except BaseException as error:  # noqa: BLE001 - `result` raises every error
            self._collected = error


class _Stoppable:
    """A policy that stops generating once `stopped` is set."""

    def __init__(self, policy: CopyingPolicy, stopped: threading.Event):
        self._policy, self._stopped = policy, stopped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        return self._policy.generate(requests, sampling)

    def stream(self, sampling: Sampling) -> Stream:
        return _StoppableStream(open_stream(self._policy, sampling), self._stopped)


class _StoppableStream:
    def __init__(self, stream: Stream, stopped: threading.Event):
        self._stream, self._stopped = stream, stopped
        self.in_step = stream.in_step

    @property
    def pending(self) -> int:
        return self._stream.pending

    def ask(self, requests: Mapping[int, Request]) -> None:
        self._stream.ask(requests)

    def work(self) -> dict[int, Response]:
        if self._stopped.is_set():
            raise NotWantedError
        return self._stream.work()
