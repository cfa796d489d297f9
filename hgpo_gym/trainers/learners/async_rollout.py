"""Rollouts that are played ahead: that of the next iteration, by weights that are there already, while an update goes
on (`rollout.overlap`). What is played is what would be played after it; only the time is another.

A policy that answers by a copy of the weights (engine=vllm) plays in a thread: its work is done outside of Python. Any
other plays in a process of its own, with a model and environments of its own.
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
from hgpo_gym.trainers.learners.collector import Collector, assign_credit
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.settings import RunSettings

STOP = signal.SIGUSR1
"""Tells the process to leave in the middle of a rollout."""
STOP_SECONDS = 5.0
"""What it has for that."""


class AsyncRolloutDiedError(RuntimeError):
    """The process that plays ahead has ended."""


class AsyncRollout(Protocol):
    """What plays ahead, one iteration at a time.

    Attributes:
        iteration: which one is being played, or is there to be taken; None if there is none.
    """

    iteration: int | None

    def submit(self, iteration: int, outcomes: Outcomes, past: StaleWeights) -> None:
        """Begin to play an iteration by the oldest of the past weights.

        Raises:
            AheadDiedError: the process has ended.
            Exception: what kept it from being there.
        """

    def result(self) -> Rounds:
        """The iteration, once it is there. Raises what was raised in playing it, or AheadDiedError."""

    def release(self) -> None:
        """Wait until the policy can be used by others."""

    def close(self) -> None:
        """Stop at once."""


def async_rollout(collector: Collector, folder: Path, measured: TaskMeasures | None) -> AsyncRollout:
    """What plays ahead of a collector.

    Args:
        collector: plays what is not played ahead.
        folder: a saved model of the run; read until the first `submit`.
        measured: what the sampler knows.
    """
    if isinstance(collector.policy, CopyingPolicy):
        return AheadInThread(collector, collector.policy)
    return AheadInProcess(collector.run, folder, measured)


class AheadInProcess:
    """See `async_rollout`: a process of its own."""

    def __init__(self, run: RunSettings, folder: Path, measured: TaskMeasures | None):
        self.iteration: int | None = None
        context = multiprocessing.get_context("spawn")
        self._connection, child_connection = context.Pipe()
        arguments = (child_connection, run.resolved, folder, measured, torch.get_num_threads())
        # No daemon: its environments may have processes too.
        self._process = context.Process(target=_serve, args=arguments, name="hgpo_gym-ahead")
        self._process.start()
        child_connection.close()
        self._ready = False

    def submit(self, iteration: int, outcomes: Outcomes, past: StaleWeights) -> None:
        """See `AsyncRollout`."""
        if not self._ready:
            self._receive()
            self._ready = True
        weights = io.BytesIO()
        torch.save([weight.cpu() for weight in past.oldest], weights)
        try:
            self._connection.send((iteration, outcomes))
            self._connection.send_bytes(weights.getbuffer())
        except ConnectionError:
            raise self._died() from None
        self.iteration = iteration

    def result(self) -> Rounds:
        """See `AsyncRollout`."""
        collected: Rounds = self._receive()
        self.iteration = None
        return collected

    def release(self) -> None:
        """See `AsyncRollout`: it has a policy of its own."""

    def close(self) -> None:
        """See `AsyncRollout`."""
        if self.iteration is not None and self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, STOP)
        self._connection.close()  # its cue to leave, where it plays nothing
        self._process.join(STOP_SECONDS)
        self._process.kill()
        self._process.join()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._died() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

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
    """The process: plays what it is asked for until the parent hangs up or stops it."""
    for number in SIGNALS:
        signal.signal(number, _leave_to_parent)
    with ExitStack() as stack, suppress(EOFError, ConnectionError, NotWantedError):
        try:
            quiet_libraries(threads)
            load_plugins(resolved["plugins"])
            run = RunSettings.parse(resolved)
            policy = run.model.load(run, folder)
            collector = Collector(run, policy)
            stack.callback(collector.close)
            if measured:
                collector.sampler.begin(measured.values)
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is to know
            error.add_note(_FAILURE_NOTE)
            connection.send(picklable(error))
            return
        signal.signal(STOP, _stop)
        connection.send(None)
        while True:
            iteration, outcomes = connection.recv()
            put_weights(policy, torch.load(io.BytesIO(connection.recv_bytes()), weights_only=True))
            connection.send(_played(collector, iteration, outcomes))


_FAILURE_NOTE = (
    "In the process that plays rollouts ahead (rollout.overlap), which makes environments and model anew. What a "
    "program registers by itself is not known there: put it in a file, and name that in plugins=[...]."
)


class NotWantedError(BaseException):
    """Nobody wants what is being played."""


def _leave_to_parent(_signal: int, _frame: object) -> None:
    """Not SIG_IGN, which the programs that environments start would inherit."""


def _stop(_signal: int, _frame: object) -> None:
    raise NotWantedError


def _played(collector: Collector, iteration: int, outcomes: Outcomes) -> Rounds | Exception:
    try:
        return _collect(collector, iteration, outcomes)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the parent's to raise
        return picklable(error)


def _collect(collector: Collector, iteration: int, outcomes: Outcomes) -> Rounds:
    def advantages(rollout: Rollout) -> np.ndarray:
        return assign_credit(collector.run, rollout)[1].values

    return collector.collect(iteration, outcomes, advantages)


class AheadInThread:
    """See `async_rollout`: a thread, in which a policy answers by a copy that it holds on to.

    Args:
        collector: whose environments play, while it does not.
        policy: its policy.
    """

    def __init__(self, collector: Collector, policy: CopyingPolicy):
        self.iteration: int | None = None
        self._policy, self._stopped = policy, threading.Event()
        self._collector = copy.copy(collector)
        self._collector.policy = _Stoppable(policy, self._stopped)
        self._copy = ExitStack()
        self._thread = threading.Thread()
        self._collected: Rounds | BaseException

    def submit(self, iteration: int, outcomes: Outcomes, past: StaleWeights) -> None:
        """See `AsyncRollout`: returns when the weights are copied."""
        with past.rollout_weights():
            self._copy.enter_context(self._policy.rollout_weights(nullcontext))
        self.iteration = iteration
        self._thread = threading.Thread(
            target=self._play, args=(iteration, outcomes), name="hgpo_gym-ahead", daemon=True
        )
        self._thread.start()

    def result(self) -> Rounds:
        """See `AsyncRollout`."""
        self.release()
        self.iteration = None
        if isinstance(self._collected, BaseException):
            raise self._collected
        return self._collected

    def release(self) -> None:
        """See `AsyncRollout`: until it has played to the end."""
        if self.iteration is not None:
            self._thread.join()
            self._copy.close()

    def close(self) -> None:
        """See `AsyncRollout`."""
        self._stopped.set()
        if self.iteration is not None:
            self._thread.join(STOP_SECONDS)  # a slow environment may take longer
            self._copy.close()

    def _play(self, iteration: int, outcomes: Outcomes) -> None:
        try:
            self._collected = _collect(self._collector, iteration, outcomes)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the rollout is taken
            self._collected = error


class _Stoppable:
    """A policy that stops answering when it is told to."""

    def __init__(self, policy: CopyingPolicy, stopped: threading.Event):
        self._policy, self._stopped = policy, stopped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """See `Policy`."""
        return self._policy.generate(requests, sampling)

    def stream(self, sampling: Sampling) -> Stream:
        """See `StreamingPolicy`."""
        return _StoppableStream(open_stream(self._policy, sampling), self._stopped)


class _StoppableStream:
    def __init__(self, stream: Stream, stopped: threading.Event):
        self._stream, self._stopped = stream, stopped
        self.in_step = stream.in_step

    @property
    def unanswered(self) -> int:
        return self._stream.unanswered

    def ask(self, requests: Mapping[int, Request]) -> None:
        self._stream.ask(requests)

    def work(self) -> dict[int, Response]:
        if self._stopped.is_set():
            raise NotWantedError
        return self._stream.work()
