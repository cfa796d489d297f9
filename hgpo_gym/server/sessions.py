"""All sessions of a server: bounded in number, each for one client alone, closed when nobody uses them."""

import asyncio
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import gymnasium

from hgpo_gym.server import models
from hgpo_gym.server.limits import Limits
from hgpo_gym.server.offers import EnvironmentOffer
from hgpo_gym.server.problems import ProblemDetails
from hgpo_gym.server.session import MIN_ACTION_CHARS, Session, StoredReply, check_order, page_of_tasks, play
from hgpo_gym.server.threads import Failed, Outcome, StillRunning, Threads

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Sessions:
    """All sessions of a server. Its methods belong to one event loop.

    Args:
        offers: what may be played, by id.
        limits: how much of it.
    """

    def __init__(self, offers: Mapping[str, EnvironmentOffer], limits: Limits):
        self._offers, self._limits = offers, limits
        self._threads = Threads(limits.threads)
        self._open: dict[str, Session] = {}
        self._held: Counter[str] = Counter()
        self._numbers = count(1)
        self._leaving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Sessions that are open, being opened or being closed: until their environment has returned, they count."""
        return self._held.total()

    def offer(self, id: str) -> EnvironmentOffer:
        """Return the environment with an id. Raises `ProblemDetails`."""
        if id not in self._offers:
            raise ProblemDetails(
                404,
                "unknown-environment",
                f"There is no environment {id[:100]!r} here.",
                f"Choose one of {', '.join(self._offers)}.",
                name="environment",
                value=id,
            )
        return self._offers[id]

    async def open(self, client: str, request: models.NewSession) -> Session:
        """Open a session. Raises `ProblemDetails`."""
        offer = self.offer(request.environment)
        offer.options(request.options)  # what may not be chosen is refused before anything is held
        self._hold(client)
        try:
            env = await self._threads.run(
                client, partial(offer.make, request.options, request.step_limit), self._limits.time_limit
            )
        except Failed as failure:
            self._release(client)
            LOG.error("%s with %s cannot be made: %s", offer.id, request.options, failure.__cause__)
            raise ProblemDetails(
                503,
                "environment-unavailable",
                f"{offer.id} cannot be made with these options.",
                "The server's log says why, to its operator.",
            ) from None
        except StillRunning as making:
            self._leave(self._close_unopened(client, making.outcome))
            raise ProblemDetails(
                504,
                "environment-timed-out",
                f"{offer.id} was not made within {self._limits.time_limit:g} s.",
                "The server goes on making what is kept for the next time: try again later.",
            ) from None
        session = Session(client, offer, env, next(self._numbers))
        self._open[session.id] = session
        return session

    def get(self, client: str, id: str) -> Session:
        """Return a session of this client. Raises `ProblemDetails` alike for unknown sessions and those of others."""
        session = self._open.get(id)
        if session is None or session.client != client:
            raise _unknown_session()
        session.used_at = time.monotonic()
        return session

    async def play(self, session: Session, request: models.Reset | models.Step) -> bytes:
        """Reset or step; the response as JSON. One request of a session after the other. Raises `ProblemDetails`."""
        async with session.lock:
            if (response := self._check_turn(session, request)) is None:
                response = self._end_turn(session, request, await self._run(session, partial(play, session, request)))
            return response

    async def step_each(self, client: str, requests: Mapping[str, models.Step]) -> dict[str, bytes]:
        """Step in several sessions, by their ids. The replies as JSON: what `play` returns for one, or its problem."""
        replies: dict[str, bytes] = {}
        sessions: dict[str, Session] = {}
        for id in requests:
            with _problem_as_reply(replies, id):
                sessions[id] = self.get(client, id)
        async with AsyncExitStack() as stack:
            # In one order for all requests, so that two of them never wait for each other.
            for session in sorted(sessions.values(), key=lambda session: session.number):
                await stack.enter_async_context(session.lock)
            turns: dict[str, Callable[[], tuple[bytes, bool]]] = {}
            for id, session in sessions.items():
                with _problem_as_reply(replies, id):
                    if (response := self._check_turn(session, requests[id])) is None:
                        turns[id] = partial(play, session, requests[id])
                    else:
                        replies[id] = response
            outcomes = await self._threads.run_all(client, list(turns.values()), self._limits.time_limit)
            for id, outcome in zip(turns, outcomes, strict=True):
                with _problem_as_reply(replies, id):
                    result = self._result(sessions[id], outcome)
                    replies[id] = self._end_turn(sessions[id], requests[id], result)
        return replies

    def _check_turn(self, session: Session, request: models.Reset | models.Step) -> bytes | None:
        """Return the stored response to a turn that is sent again, None for the next turn. Raises `ProblemDetails`."""
        self._check_open(session)
        if session.last and request.turn == session.turn and request == session.last.request:
            return session.last.response
        check_order(session, request, self._limits.episode)
        return None

    def _end_turn(self, session: Session, request: models.Reset | models.Step, result: tuple[bytes, bool]) -> bytes:
        response, session.episode_runs = result
        if isinstance(request, models.Step):
            session.action_chars += max(MIN_ACTION_CHARS, len(request.action))
        else:
            session.action_chars = 0
        session.turn, session.last = session.turn + 1, StoredReply(request, response)
        return response

    async def tasks(self, session: Session, offset: int, limit: int, task_id: str | None) -> models.TaskPage:
        """Return a page of the session's tasks. Raises `ProblemDetails`."""
        async with session.lock:
            self._check_open(session)
            return await self._run(session, partial(page_of_tasks, session.env, offset, limit, task_id))

    async def listed_tasks(self, client: str, offer: EnvironmentOffer, offset: int, limit: int) -> models.TaskPage:
        """Return a page of the tasks of an environment with its default options. Raises `ProblemDetails`."""
        session = await self.open(client, models.NewSession(environment=offer.id))
        try:
            return await self.tasks(session, offset, limit, None)
        finally:
            await self.close(session)

    async def close(self, session: Session) -> None:
        """Close a session once what it is at is done. May be called twice."""
        async with session.lock:
            if self._open.pop(session.id, None) is not None:
                await self._close_env(session.client, session.env)

    async def close_idle(self) -> None:
        """Close the sessions that nobody has used for too long, again and again."""
        while True:
            await asyncio.sleep(min(5.0, self._limits.idle_timeout / 4))
            last = time.monotonic() - self._limits.idle_timeout
            for session in [session for session in self._open.values() if session.used_at < last]:
                if not session.lock.locked():
                    LOG.info("Session %d (%s) was idle: closed.", session.number, session.offer.id)
                    self._leave(self.close(session))

    async def close_all(self) -> None:
        """Close everything; environments that do not return are left."""
        LOG.info("Closing %d sessions.", len(self))
        for session in list(self._open.values()):
            self._leave(self.close(session))
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=5)

    def _hold(self, client: str) -> None:
        if self._held[client] >= self._limits.sessions_per_client:
            raise ProblemDetails(
                429,
                "too-many-sessions",
                f"You have {self._held[client]} sessions open, as many as one client may have.",
                f"Close one, or leave it unused for {self._limits.idle_timeout:g} s.",
                headers={"Retry-After": "5"},
            )
        if len(self) >= self._limits.sessions:
            raise ProblemDetails(
                503,
                "server-full",
                f"All {self._limits.sessions} sessions of this server are in use.",
                "Try again later; the operator sets --sessions.",
                headers={"Retry-After": "5"},
            )
        self._held[client] += 1

    def _release(self, client: str) -> None:
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]

    def _check_open(self, session: Session) -> None:
        if session.id not in self._open:  # closed while the request waited its turn
            raise _unknown_session()

    async def _run(self, session: Session, function: Callable[[], T]) -> T:
        (outcome,) = await self._threads.run_all(session.client, [function], self._limits.time_limit)
        return self._result(session, outcome)

    def _result(self, session: Session, outcome: Outcome[T]) -> T:
        """Return the value of what a session's environment did; if it failed, the session is over, and no other."""
        session.used_at = time.monotonic()
        try:
            return outcome.get()
        except Failed as failure:
            if isinstance(failure.__cause__, ProblemDetails):
                raise failure.__cause__ from None
            del self._open[session.id]
            self._leave(self._close_env(session.client, session.env))
            raise _environment_failed(session, failure.__cause__) from None
        except StillRunning as running:
            del self._open[session.id]
            self._leave(self._close_later(session, running.outcome))
            LOG.error("Session %d (%s) took too long: ended.", session.number, session.offer.id)
            raise ProblemDetails(
                504,
                "environment-timed-out",
                f"{session.offer.id} did not answer within {self._limits.time_limit:g} s. This session is over.",
                "Create another; the operator sets --time-limit.",
            ) from None

    def _leave(self, work: Any) -> None:
        """Have something done that no request waits for."""
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_env(self, client: str, env: gymnasium.Env[str, str]) -> None:
        try:
            await self._threads.run(client, env.close, self._limits.time_limit)
        except Failed as failure:
            LOG.error("An environment could not be closed: %s.", _place(failure.__cause__))
        except StillRunning as closing:
            await asyncio.wrap_future(closing.outcome)
        self._release(client)

    async def _close_later(self, session: Session, outcome: "Future[Outcome[Any]]") -> None:
        await asyncio.wrap_future(outcome)
        await self._close_env(session.client, session.env)

    async def _close_unopened(self, client: str, outcome: "Future[Outcome[gymnasium.Env[str, str]]]") -> None:
        env = (await asyncio.wrap_future(outcome)).value
        if env is None:
            self._release(client)
        else:
            await self._close_env(client, env)


@contextmanager
def _problem_as_reply(replies: dict[str, bytes], id: str) -> Iterator[None]:
    try:
        yield
    except ProblemDetails as problem:
        replies[id] = problem.content


def _unknown_session() -> ProblemDetails:
    return ProblemDetails(
        404,
        "unknown-session",
        "You have no such session: it was closed, was idle for too long, ended with an error, or never was.",
        "Create one: POST /sessions.",
    )


def _environment_failed(session: Session, error: BaseException | None) -> ProblemDetails:
    """Return the client's reply to an environment's error. The log gets the place of the error, and not its message,
    which may hold text of the client."""
    LOG.error("Session %d (%s) ended: %s.", session.number, session.offer.id, _place(error))
    return ProblemDetails(
        502,
        "environment-failed",
        f"{session.offer.id} failed with {type(error).__name__}. This session is over.",
        "Create another; the server's log says where it failed.",
    )


def _place(error: BaseException | None) -> str:
    """Return the kind of an error and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    where = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno} ({frames[-1].name})" if frames else ""
    return f"{type(error).__name__}{where}"
