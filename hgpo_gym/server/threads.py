"""Run environment code in a few threads, so that it blocks neither the server nor another client."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Outcome(NamedTuple, Generic[T]):
    """The result or the error of a function. It is stored as a value, so that no library logs the error."""

    value: T | None
    error: BaseException | None = None

    def get(self) -> T:
        """Return the value. An error is raised as the cause of `Failed`, unless it is `StillRunning`."""
        if isinstance(self.error, StillRunning):
            raise self.error
        if self.error is not None:
            raise Failed from self.error
        return self.value  # type: ignore[return-value] # there is an error or a T


class Failed(Exception):  # noqa: N818 - like concurrent.futures.CancelledError, it tells what became of the call
    """The function raised; `__cause__` is the error."""


class StillRunning(Exception):  # noqa: N818
    """The function takes too long, and its caller no longer waits. `outcome` is set once it has ended."""

    def __init__(self, outcome: "Future[Outcome[Any]]"):
        super().__init__()
        self.outcome = outcome


class Threads:
    """A bounded number of threads that run functions in the order of their arrival.

    One client gets at most half of the threads, so that other clients find one. A thread whose function takes too
    long is replaced, and ends when the function does. Threads are daemons, so a function that never returns does not
    keep the process alive.

    Args:
        count: number of threads.

    Attributes:
        each: the most threads of one client.
    """

    def __init__(self, count: int):
        self._queue: SimpleQueue[_Job[Any]] = SimpleQueue()
        self.each = max(1, count // 2)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        for _ in range(count):
            self._start_one()

    async def run(self, client: str, function: Callable[[], T], time_limit: float) -> T:
        """Return the result of the function. `time_limit` is in seconds, from the start of the function.

        Raises:
            Failed: the function raised.
            StillRunning: the function did not return in time, or the caller was cancelled.
        """
        (outcome,) = await self.run_all(client, [function], time_limit)
        return outcome.get()

    async def run_all(self, client: str, functions: Sequence[Callable[[], T]], time_limit: float) -> list[Outcome[T]]:
        """Run functions one after the other, each as `run` does, and return their outcomes.

        If one does not return in time, the rest continues in another thread.
        """
        outcomes: list[Outcome[T]] = []
        # The semaphore lives as long as one of the client's requests holds it: the dictionary has weak values.
        async with self._shares.setdefault(client, asyncio.Semaphore(self.each)):
            while len(outcomes) < len(functions):
                job = _Job(functions[len(outcomes) :])
                self._queue.put(job)
                ended = asyncio.wrap_future(job.ended)
                try:
                    while not ended.done() and (remaining := job.seconds_left(time_limit)) > 0:
                        await asyncio.wait({ended}, timeout=remaining)
                except asyncio.CancelledError:
                    outcomes += self._give_up(job)
                    return outcomes + outcomes[-1:] * (len(functions) - len(outcomes))
                outcomes += self._give_up(job)
        return outcomes

    def _give_up(self, job: "_Job[T]") -> list[Outcome[T]]:
        """Return the outcomes of a job, without waiting for the function that it is at. Its thread is replaced."""
        if job.abandon():
            self._start_one()
        return job.outcomes

    def _start_one(self) -> None:
        threading.Thread(target=self._work, name="environment", daemon=True).start()

    def _work(self) -> None:
        while self._queue.get().run():
            pass


class _Job(Generic[T]):
    """Functions that a thread runs one after the other, until its caller stops waiting.

    Attributes:
        outcomes: of the functions until now.
        ended: set when all have returned.
    """

    def __init__(self, functions: Sequence[Callable[[], T]]):
        self.outcomes: list[Outcome[T]] = []
        self.ended: Future[None] = Future()
        self._functions = functions
        self._late: Future[Outcome[T]] = Future()
        self._lock = threading.Lock()
        self._began: float | None = None
        self._abandoned = False

    def seconds_left(self, time_limit: float) -> float:
        """Return the seconds until the present function takes too long."""
        began = self._began
        return time_limit if began is None else began + time_limit - time.monotonic()

    def abandon(self) -> bool:
        """Give up the present function, and all after it. Return True if a thread is still busy with it."""
        with self._lock:
            if len(self.outcomes) == len(self._functions):
                return False
            self._abandoned = True
            self.outcomes.append(Outcome(None, StillRunning(self._late)))
            return self._began is not None

    def run(self) -> bool:
        """Run functions until their caller stops waiting. Return True if this thread has not been replaced."""
        with self._lock:
            if self._abandoned:
                self._late.set_result(Outcome(None, asyncio.CancelledError()))
                return True
            self._began = time.monotonic()
        for function in self._functions:
            try:
                outcome = Outcome(function())
            except BaseException as error:  # noqa: BLE001 - whatever an environment raises, SystemExit included
                outcome = Outcome(None, error)
            # Under the lock: either the caller sees the end, or this thread sees that it was replaced.
            with self._lock:
                if self._abandoned:
                    self._late.set_result(outcome)
                    return False
                self.outcomes.append(outcome)
                self._began = time.monotonic()
        self.ended.set_result(None)
        return True
