"""The sub-environments of a TextVectorEnv in worker processes, which may die or hang."""

import contextlib
import math
import multiprocessing
import pickle
import signal
import time
import warnings
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec

from hgpo_gym.envs.sub_envs import EpisodeReplay, EpisodeStart, LocalSubEnvs, ResetResult, StepResult
from hgpo_gym.picklable_errors import describe_failed_start, picklable
from hgpo_gym.plugins import load_plugins, loaded_plugins

PATIENCE = 60.0
"""Seconds without an answer after which a warning names the worker; the next warning comes after twice as many, and so
on."""


class WorkerDiedError(RuntimeError):
    """Error for a worker process that ended or hung twice at the same request, or during the replay of its episodes.

    Attributes:
        row: of the sub-environment that was played.
        task_id: its task.
    """

    def __init__(self, message: str, row: int, task_id: str):
        super().__init__(message, row, task_id)
        self.row, self.task_id = row, task_id

    def __str__(self) -> str:
        return str(self.args[0])


class _LostError(Exception):
    """Error for a worker that will not answer. The message gives the reason, `remedy` a possible fix."""

    def __init__(self, reason: str, remedy: str):
        super().__init__(reason)
        self.remedy = remedy


class _Worker:
    """Process and its pipe.

    Args:
        spec: of the environments, pickled.
        rows: that it has.
        timeout: seconds for a reset or a step; None: as long as it takes.
    """

    def __init__(self, spec: bytes, rows: Iterable[int], timeout: float | None):
        # A fork would copy the threads' locks of torch and BLAS in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self.connection, child_end = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(child_end, loaded_plugins(), spec, list(rows)), daemon=True, name="hgpo_gym-env"
        )
        self.process.start()
        # Without this the parent would hold the pipe open, and not see that the worker has died.
        child_end.close()
        self._timeout = math.inf if timeout is None else timeout
        self._seconds = math.inf
        self._deadline: float | None = None  # of the request; None while the environments are being made
        self._request, self._sent_at, self._patience = "", 0.0, PATIENCE

    def send(self, kind: str, part: Mapping[int, Any]) -> None:
        """Send a request. The time for its answer runs from now, or from when the environments are made."""
        self._request = f"{kind} of sub-environment {', '.join(map(str, part))}"
        self._sent_at, self._patience = time.monotonic(), PATIENCE
        self._seconds = self._timeout * sum(map(_moves, part.values()))
        if self._deadline is not None:
            self._deadline = time.monotonic() + self._seconds
        with contextlib.suppress(ConnectionError):  # seen when the answer is awaited
            if not self.connection.closed:
                self.connection.send((kind, part))

    @property
    def seconds_left(self) -> float:
        """Seconds until the answer is overdue; infinite without a deadline."""
        return math.inf if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def warns_at(self) -> float:
        """Time of the next warning about a missing answer, on the clock of `time.monotonic`."""
        return self._sent_at + self._patience

    def warn_of_silence(self) -> None:
        """Warn that the worker has not answered yet, and double the waiting time."""
        warnings.warn(
            f"No response from worker process {self.process.pid} for {self._patience:g} s: {self._request}. Stopped "
            f"by somebody? 'kill -CONT {self.process.pid}' wakes it. Slow? With worker_timeout=SECONDS one that takes "
            "longer is replaced.",
            stacklevel=2,
        )
        self._patience *= 2

    def receive(self) -> Any:
        """Return the answer to the last request, by row.

        Raises:
            _LostError: the process has ended, could not make its environments, or did not answer in time, in which
                case it was killed.
            RuntimeError: it ended before it began, as every other would.
        """
        try:
            if self.connection.closed:
                raise EOFError
            if self._deadline is None:
                _wait_for([self], math.inf)
                if isinstance(error := self.connection.recv(), Exception):
                    self.kill()
                    raise _LostError(f"could not make its environments ({type(error).__name__}: {error})", "")
                self._deadline = time.monotonic() + self._seconds
            if _wait_for([self], self.seconds_left):
                return self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join(timeout=5)  # it may not have an exit code yet
            self.kill()
            if self._deadline is None and (self.process.exitcode or 0) > 0:
                raise RuntimeError(describe_failed_start(self.process.exitcode or 0, "set workers=0")) from None
            reason = f"ended (exit code {self.process.exitcode})"
            raise _LostError(reason, "Out of memory? Try fewer workers. ") from None
        self.kill()
        raise _LostError(f"gave no response within {self._seconds:g} s", "Too slow? Set a longer worker_timeout. ")

    def kill(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()

    def close(self) -> None:
        self.connection.close()  # the worker's cue to leave
        self.process.join(timeout=5)
        self.kill()


class WorkerSubEnvs:
    """Sub-environments in `workers` processes. A worker that dies is replaced and its episodes are replayed. If the
    same request kills it again, that sub-environment has failed, and the others continue.

    Args:
        spec: of the environments.
        num_envs: rows.
        workers: processes.
        timeout: seconds for a reset or a step; a worker that takes longer is killed, and has died. None: no limit.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, workers: int, timeout: float | None = None):
        self._spec, self._timeout = cloudpickle.dumps(spec), timeout
        self._rows = [range(worker, num_envs, workers) for worker in range(workers)]
        self._episodes: dict[int, EpisodeReplay] = {}
        self._workers = [self._start(worker) for worker in range(workers)]
        # A worker has one request at a time: two pipes that are both full would wait for each other.
        self._stepping: list[dict[int, str]] = [{} for _ in self._rows]
        self._waiting: list[dict[int, str]] = [{} for _ in self._rows]
        self._failed: dict[int, Exception] = {}  # rows that could not be brought back, until they are asked for
        self._results: dict[int, StepResult | Exception] = {}

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "Environments in worker processes cannot be copied: make them with workers=0, or make another "
            "TextVectorEnv and bring its members to the same places by begin_at()."
        )

    def begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, ResetResult | Exception]:
        self._waiting = [{} for _ in self._rows]
        while any(self._stepping):  # of a rollout that was broken off
            self.receive(1)
        self._results.clear()
        for row in starts:
            self._episodes.pop(row, None)
            self._failed.pop(row, None)
        parts = self._by_worker(starts)
        for worker, part in parts.items():
            self._workers[worker].send("begin", part)
        return {
            row: response
            for worker, part in parts.items()
            for row, response in self._response(worker, "begin", part).items()
        }

    def send(self, actions: Mapping[int, str]) -> None:
        for worker, part in self._by_worker(actions).items():
            self._waiting[worker] |= part
            self._send_waiting(worker)

    def receive(self, at_least: int) -> dict[int, StepResult | Exception]:
        results = self._pop_results()
        while busy := [worker for worker, part in enumerate(self._stepping) if part]:
            connections = {self._workers[worker].connection: worker for worker in busy}
            enough = len(results) >= at_least
            left = min(self._workers[worker].seconds_left for worker in busy)
            # With enough results, collect only those that have arrived already.
            ready = _wait_for([self._workers[worker] for worker in busy], 0 if enough else left)
            if enough and not ready:
                break
            late = [worker for worker in busy if not self._workers[worker].seconds_left]
            for worker in sorted({*(connections[connection] for connection in ready), *late}):
                self._step_results(worker)
            results |= self._pop_results()
        return results

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    @property
    def process_ids(self) -> list[int]:
        """Ids of the workers' processes."""
        return [pid for worker in self._workers if (pid := worker.process.pid)]

    def _start(self, worker: int) -> _Worker:
        return _Worker(self._spec, self._rows[worker], self._timeout)

    def _by_worker(self, arguments: Mapping[int, Any]) -> dict[int, dict[int, Any]]:
        return {
            worker: part
            for worker, rows in enumerate(self._rows)
            if (part := {row: arguments[row] for row in rows if row in arguments})
        }

    def _send_waiting(self, worker: int) -> None:
        """Send a free worker the steps that wait for it."""
        if not self._stepping[worker]:
            waiting, self._waiting[worker] = self._waiting[worker], {}
            failed = waiting.keys() & self._failed.keys()
            self._results |= {row: self._failed.pop(row) for row in failed}
            if part := {row: action for row, action in waiting.items() if row not in failed}:
                self._stepping[worker] = part
                self._workers[worker].send("step", part)

    def _pop_results(self) -> dict[int, StepResult | Exception]:
        """Return the available results and clear them."""
        results, self._results = self._results, {}
        return results

    def _step_results(self, worker: int) -> None:
        """Receive the results of a worker that has finished its steps or died."""
        part, self._stepping[worker] = self._stepping[worker], {}
        self._results |= self._response(worker, "step", part)
        self._send_waiting(worker)

    def _response(self, worker: int, kind: str, part: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answers to a request that was sent, from another process if this one died at it."""
        try:
            responses = self._workers[worker].receive()
            for row, response in responses.items():
                self._note(kind, row, part[row], response)
            return responses
        except _LostError:
            self._replace(worker)
        responses = {}
        for row, argument in part.items():  # one by one, to see which it is
            if row in self._failed:
                responses[row] = self._failed.pop(row)
                continue
            task_id = argument.task_id if kind == "begin" else self._episodes[row].start.task_id
            # Among others it may not have been reached before, and has two tries of its own.
            for last in (False, True) if len(part) > 1 else (True,):
                response = self._ask_single(worker, kind, row, argument, task_id, f"twice at the same {kind}")
                if not isinstance(response, WorkerDiedError):
                    break
                if last:
                    self._episodes.pop(row, None)
                self._replace(worker)
                if row in self._failed:  # it could not be brought back
                    response = self._failed.pop(row)
                    break
            self._note(kind, row, argument, response)
            responses[row] = response
        return responses

    def _note(self, kind: str, row: int, argument: Any, response: Any) -> None:
        """Record the progress of the row's episode."""
        if isinstance(response, Exception):
            self._episodes.pop(row, None)
        elif kind == "begin":
            self._episodes[row] = EpisodeReplay(argument)
        else:
            self._episodes[row].actions.append(argument)

    def _replace(self, worker: int) -> None:
        """Start a new process for a worker that died and replay its running episodes. Episodes that cannot be replayed
        have failed."""
        self._workers[worker] = self._start(worker)
        for row in self._rows[worker]:
            if (episode := self._episodes.get(row)) is not None:
                task_id = episode.start.task_id
                response = self._ask_single(worker, "replay", row, episode, task_id, "during its replay")
                if isinstance(response, Exception):
                    del self._episodes[row]
                    self._failed[row] = response
                if isinstance(response, WorkerDiedError):
                    self._replace(worker)
                    return

    def _ask_single(self, worker: int, kind: str, row: int, argument: Any, task_id: str, when: str) -> Any:
        """Return the row's answer; a WorkerDiedError if the process has died at it."""
        self._workers[worker].send(kind, {row: argument})
        try:
            return self._workers[worker].receive()[row]
        except _LostError as lost:
            return WorkerDiedError(
                f"Worker process {worker} {lost} {when}: sub-environment {row}, task {task_id!r}. {lost.remedy}"
                "workers=0 shows the error.",
                row,
                task_id,
            )


def _wait_for(workers: Collection[_Worker], seconds: float) -> list[Any]:
    """Return the connections of the workers that have answered or ended; none after the timeout. Warn of workers that
    do not answer for long."""
    until = time.monotonic() + seconds
    while True:
        now, next_look = time.monotonic(), min(until, *(worker.warns_at for worker in workers))
        if ready := wait([worker.connection for worker in workers], max(0.0, next_look - now)):
            return ready
        if (now := time.monotonic()) >= until:
            return []
        for worker in workers:
            if worker.warns_at <= now:
                worker.warn_of_silence()


def _moves(argument: EpisodeStart | EpisodeReplay | str) -> int:
    """Return the number of resets and steps in a row's part of a request."""
    if isinstance(argument, EpisodeReplay):
        return _moves(argument.start) + len(argument.actions)
    return 1 + len(argument.prefix) if isinstance(argument, EpisodeStart) else 1


def _serve(connection: Connection, plugins: Iterable[str], pickled_spec: bytes, rows: list[int]) -> None:
    """Answer requests in a worker process until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        load_plugins(plugins)
        spec = pickle.loads(pickled_spec)
        make = partial(gymnasium.make, spec, disable_env_checker=True)
        members = LocalSubEnvs({row: make() for row in rows}, make)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent is to know
        connection.send(picklable(error))
        return
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send("made")
        while True:
            kind, part = connection.recv()
            responses = getattr(members, kind)(part).items()
            connection.send(
                {
                    row: picklable(response) if isinstance(response, Exception) else response
                    for row, response in responses
                }
            )
    members.close()
