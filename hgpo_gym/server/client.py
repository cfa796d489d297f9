"""RemoteTextEnv: an environment that is played on a server of `hgpo-gym serve`."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.spaces import UnicodeText
from hgpo_gym.server.serve import TOKEN_VARIABLE

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Remote environments need the package {error.name}: pip install 'hgpo_gym[server]'", name=error.name
    ) from error

_ATTEMPTS = 5
_PAGE = 1000
_PAGES_KEPT = 16
_MISTAKES = ("unknown-environment", "unknown-option", "unknown-task", "too-long", "malformed")


class RemoteError(RuntimeError):
    """The server refused a request, or the environment failed there.

    Attributes:
        problem: the server's problem object.
    """

    def __init__(self, problem: Mapping[str, Any]):
        super().__init__(f"{problem['detail']} {problem['remedy']}")
        self.problem = problem


class SessionLostError(RemoteError):
    """The session is no longer there; `reset(seed=...)` opens another."""


class Connection:
    """A server, spoken to in JSON. What can be repeated without harm is, if no answer comes.

    Args:
        url: of the server.
        token: None for a server that asks for none.
        timeout: seconds to wait for an answer.

    Raises:
        ValueError: not a URL of HTTP.
    """

    def __init__(self, url: str, token: str | None, timeout: float):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url={url!r}: write http://host:port.")
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            trust_env=False,  # no proxy that the environment names gets the token
            verify=url.startswith("https"),  # certificates take 20 ms to load
        )

    def request(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, *, repeatable: bool = True, **query: Any
    ) -> Any:
        """The answer.

        Raises:
            ConnectionError: there is none, or not from such a server.
            ValueError: the server does not know what was asked for.
            gymnasium.error.ResetNeeded: a step where there is no episode.
            RemoteError: the server refuses for another reason.
        """
        # json makes ASCII, so that half of a surrogate pair, of which an action may consist, passes.
        body = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"} if body else {}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._http.request(method, self._url + path, content=body, headers=headers, params=query)
                break
            except httpx.TransportError as error:
                sent = not isinstance(error, httpx.ConnectError)
                if attempt == _ATTEMPTS or (sent and not repeatable):
                    raise ConnectionError(
                        f"No answer from {self._url} ({type(error).__name__}: {error}). Is 'hgpo-gym serve' there?"
                    ) from error
                time.sleep(0.05 * 2**attempt)
        if response.is_success and (not response.content or response.headers["content-type"] == "application/json"):
            return json.loads(response.content) if response.content else None
        if response.headers.get("content-type") != "application/problem+json":
            raise ConnectionError(f"{self._url} answers with {response.status_code}, not as 'hgpo-gym serve' does.")
        raise _error(json.loads(response.content))

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()


def _error(problem: Mapping[str, Any]) -> Exception:
    if problem["type"] in _MISTAKES:
        given = f" ({problem['name']}={problem['value']})" if "name" in problem else ""
        return ValueError(f"{problem['detail']}{given} {problem['remedy']}")
    if problem["type"] == "reset-needed":
        return ResetNeeded(f"{problem['detail']} {problem['remedy']}")
    return (SessionLostError if problem["type"] == "unknown-session" else RemoteError)(problem)


class RemoteTextEnv(TextEnv):
    """An environment that is played on a server: the same texts, at the same seeds, as if it were here.

    A request whose answer is lost is sent again, and the server does not play it twice. Where the session is lost (the
    server was started again, or nothing was done for too long), `reset(seed=...)` opens another. With another generator
    as `np_random`, as members of a group have, what happens by chance from then on is the server's, seeded by it.

    `info` is what the server's environment says, its tuples as lists but for `admissible_actions`.

    Args:
        url: of the server.
        env: an id that it offers.
        token: None takes $HGPO_GYM_SERVER_TOKEN, if set.
        step_limit: steps until an episode is truncated; None: the environment's own, 0: never.
        timeout: seconds to wait for an answer.
        render_mode: None or `ansi`.
        options: of the environment, among those that the server lets clients choose.

    Raises:
        ConnectionError: no answer, or not from such a server.
        ValueError: an id or option that the server does not offer.
        RemoteError: the server refuses for another reason, e.g. the token.
    """

    def __init__(
        self,
        url: str,
        env: str,
        *,
        token: str | None = None,
        step_limit: int | None = None,
        timeout: float = 120.0,
        render_mode: str | None = None,
        **options: Any,
    ):
        super().__init__(render_mode=render_mode)
        self._connection = Connection(url, token or os.environ.get(TOKEN_VARIABLE), timeout)
        self._asked_for = {"environment": env, "options": options, "step_limit": step_limit}
        self._open()
        self._out_of_step = False
        self._seed: int | None = None
        self._chance: int | None = None
        self._truncated = False
        self._task_type = ""

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode. Raises what `TextEnv.reset` does, and as the class."""
        self._seed, self._chance = None if seed is None else int(seed), None
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action; `truncated` at the step limit. Raises what `TextEnv.step` does, and as the class."""
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self._truncated, info

    def choose_task(self, options: Mapping[str, Any]) -> Any:
        """The task that was asked for; None leaves it to the server."""
        return options.get("task_id")

    def begin_episode(self, task_id: str | None) -> Turn:
        try:
            return self._begin(task_id)
        except SessionLostError:
            if self._seed is None and self._turn:
                raise  # what would have happened by chance is lost with it
        self._open()
        return self._begin(task_id)

    def _begin(self, task_id: str | None) -> Turn:
        if self._out_of_step:
            self._turn = self._connection.request("GET", self._path)["turn"]
            self._out_of_step = False
        return self._play("reset", seed=self._seed, task_id=task_id)

    def take_action(self, action: str) -> Turn:
        seed, self._chance = self._chance, None
        return self._play("step", action=action, seed=seed)

    def task_type(self, task_id: str) -> str:  # noqa: ARG002 - the server tells that of the present task
        return self._task_type

    @property
    def np_random(self) -> np.random.Generator:
        """Nothing here is left to it; one that is set seeds what happens by chance on the server from then on."""
        return super().np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self._np_random, self._np_random_seed = value, -1
        self._chance = int(value.integers(2**63))

    def close(self) -> None:
        """Close the session, if the server is still there. May be called twice."""
        if self._connection.closed:
            return
        # Where the server cannot be reached, it closes the session when that has been idle for long enough.
        with suppress(SessionLostError, ConnectionError):
            self._connection.request("DELETE", self._path)
        self._connection.close()

    def _open(self) -> None:
        session = self._connection.request("POST", "/sessions", self._asked_for, repeatable=False)
        self._path, self._turn = f"/sessions/{session['session']}", 0
        self.split = session["split"]
        self.task_ids = RemoteTaskIds(self._connection, f"{self._path}/tasks", session["num_tasks"])
        self.observation_space = UnicodeText(session["max_text_length"])
        self.action_space = UnicodeText(session["max_text_length"])

    def _play(self, what: str, **fields: Any) -> Turn:
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            answer = self._connection.request("POST", f"{self._path}/{what}", {"turn": self._turn + 1, **given})
        except ConnectionError:
            self._out_of_step = True  # it may have been played or not
            raise
        self._turn, self._truncated = answer["turn"], answer["truncated"]
        info = dict(answer["info"])
        self.task_id, self._task_type = info.pop("task_id"), info.pop("task_type")
        return Turn(
            answer["observation"],
            task=info.pop("task"),
            admissible_actions=tuple(info.pop("admissible_actions")),
            reward=answer["reward"],
            terminated=answer["terminated"],
            won=info.pop("won"),
            action_valid=info.pop("action_valid", True),
            extras=info,
        )


class RemoteTaskIds(Sequence[str]):
    """The task ids of a session, fetched page by page when they are looked at.

    Args:
        connection: to the server.
        path: of the list.
        total: how many there are.
    """

    def __init__(self, connection: Connection, path: str, total: int):
        self._connection, self._path, self._total = connection, path, total
        self._page = lru_cache(maxsize=_PAGES_KEPT)(self._fetch)

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, index: Any) -> Any:
        positions = range(self._total)[index]
        if isinstance(positions, range):
            return tuple(map(self.__getitem__, positions))
        page, place = divmod(positions, _PAGE)
        return self._page(page)[place]

    def __contains__(self, task_id: object) -> bool:
        if not isinstance(task_id, str):
            return False
        return bool(self._connection.request("GET", self._path, task_id=task_id)["task_ids"])

    def _fetch(self, page: int) -> list[str]:
        return self._connection.request("GET", self._path, offset=page * _PAGE, limit=_PAGE)["task_ids"]
