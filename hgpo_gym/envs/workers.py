"""The sub-environments of a TextVectorEnv in worker processes, which may die."""

import contextlib
import multiprocessing
import pickle
import signal
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec

from hgpo_gym.envs.members import EpisodeReplay, EpisodeStart, LocalMembers, Opening, StepResult


class WorkerDiedError(RuntimeError):
    """A worker process ended twice at the same request."""


class WorkerMembers:
    """Sub-environments in `workers` processes. A worker that dies is replaced and its episodes are replayed."""

    def __init__(self, spec: EnvSpec, num_envs: int, workers: int):
        self._spec = spec
        self._rows = [range(worker, num_envs, workers) for worker in range(workers)]
        self._episodes: dict[int, EpisodeReplay] = {}
        self._workers = [self._start(rows) for rows in self._rows]
        # A worker has one request at a time: two pipes that are both full would wait for each other.
        self._stepping: list[dict[int, str]] = [{} for _ in self._rows]
        self._waiting: list[dict[int, str]] = [{} for _ in self._rows]

    def begin(self, starts: Mapping[int, EpisodeStart]) -> dict[int, Opening]:
        self._waiting = [{} for _ in self._rows]
        while any(self._stepping):  # of a rollout that was broken off
            self.receive(1)
        for row in starts:
            self._episodes.pop(row, None)
        answers = self._request("begin", starts)
        self._episodes.update({row: EpisodeReplay(start) for row, start in starts.items()})
        return answers

    def send(self, actions: Mapping[int, str]) -> None:
        for worker, part in self._by_worker(actions).items():
            self._waiting[worker] |= part
            self._send_waiting(worker)

    def receive(self, at_least: int) -> dict[int, StepResult]:
        results: dict[int, StepResult] = {}
        while busy := [worker for worker, part in enumerate(self._stepping) if part]:
            connections = {self._workers[worker][1]: worker for worker in busy}
            ready = wait(list(connections), timeout=None if len(results) < at_least else 0)
            if not ready:
                break
            for worker in sorted(connections[connection] for connection in ready):  # type: ignore[index]
                results |= self._step_results(worker)
        return results

    def close(self) -> None:
        for process, connection in self._workers:
            connection.close()  # the worker's cue to leave
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()

    @property
    def processes(self) -> list[BaseProcess]:
        return [process for process, _ in self._workers]

    def _start(self, rows: Iterable[int]) -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, cloudpickle.dumps(self._spec), list(rows)), daemon=True, name="hgpo_gym-env"
        )
        process.start()
        theirs.close()
        return process, ours

    def _request(self, kind: str, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Send each worker its rows' part, then gather the answers."""
        parts = self._by_worker(arguments)
        for worker, part in parts.items():
            self._send(worker, kind, part)
        answers: dict[int, Any] = {}
        for worker, part in parts.items():
            answers.update(self._answer(worker, kind, part))
        return answers

    def _by_worker(self, arguments: Mapping[int, Any]) -> dict[int, dict[int, Any]]:
        return {
            worker: part
            for worker, rows in enumerate(self._rows)
            if (part := {row: arguments[row] for row in rows if row in arguments})
        }

    def _send_waiting(self, worker: int) -> None:
        """Give a worker that is free the steps that wait for it."""
        if self._waiting[worker] and not self._stepping[worker]:
            self._stepping[worker], self._waiting[worker] = self._waiting[worker], {}
            self._send(worker, "step", self._stepping[worker])

    def _step_results(self, worker: int) -> dict[int, StepResult]:
        """What the worker's environments say, which are through with their steps or whose worker died."""
        part, self._stepping[worker] = self._stepping[worker], {}
        results = self._answer(worker, "step", part)
        for row, action in part.items():
            self._episodes[row].actions.append(action)
        self._send_waiting(worker)
        return results

    def _send(self, worker: int, kind: str, part: Mapping[int, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # seen when the answer is awaited
            self._workers[worker][1].send((kind, part))

    def _receive(self, worker: int) -> dict[int, Any]:
        answer = self._workers[worker][1].recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, worker: int, kind: str, part: Mapping[int, Any]) -> dict[int, Any]:
        try:
            return self._receive(worker)
        except (EOFError, ConnectionResetError):
            self._replace(worker)
        self._send(worker, kind, part)
        try:
            return self._receive(worker)
        except (EOFError, ConnectionResetError):
            tasks = sorted({self._episodes[row].start.task_id for row in part if row in self._episodes})
            process = self._workers[worker][0]
            process.join()
            raise WorkerDiedError(
                f"Worker process {worker} ended twice (exit code {process.exitcode}) at the same {kind} of "
                f"{len(part)} environments, tasks {tasks}. Out of memory? Try fewer workers; workers=0 shows the error."
            ) from None

    def _replace(self, worker: int) -> None:
        """A new process for a worker that died, its running episodes replayed to where they were."""
        process, connection = self._workers[worker]
        connection.close()
        process.join()
        rows = self._rows[worker]
        self._workers[worker] = self._start(rows)
        self._send(worker, "replay", {row: self._episodes[row] for row in rows if row in self._episodes})
        self._receive(worker)


def _serve(connection: Connection, pickled_spec: bytes, rows: list[int]) -> None:
    """A worker process: answers requests until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    spec = pickle.loads(pickled_spec)
    members = LocalMembers({row: gymnasium.make(spec, disable_env_checker=True) for row in rows})
    answer: dict[int, Any] | Exception
    while True:
        try:
            kind, part = connection.recv()
        except (EOFError, ConnectionResetError):
            break
        try:
            answer = getattr(members, kind)(part)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = error
        connection.send(answer)
    members.close()
