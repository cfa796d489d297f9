"""RemoteTextEnv: an environment that is played on a server of `hgpo-gym serve`."""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from hgpo_gym.client.connection import Connection, RemoteError, SessionLostError
from hgpo_gym.client.replies import (
    Reply,
    SessionReply,
    SessionTurn,
    StepReplies,
    TaskPageReply,
    TurnReply,
    unlike_a_server,
)
from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.spaces import UnicodeText

TOKEN_VARIABLE = "HGPO_GYM_SERVER_TOKEN"
_PAGE = 1000
_PAGES_KEPT = 16
_STEPS_TOGETHER = 256


class RemoteTextEnv(TextEnv):
    """An environment on a server: it gives the same texts for the same seeds as a local one.

    A request without a response is sent again, and the server does not play it twice. If the session is lost (the
    server restarted, or the session was idle too long), `reset(seed=...)` opens another. If another generator is set as
    `np_random`, as for members of a group, it seeds the server's random events from then on.

    `info` holds what the server's environment reports. Its tuples are lists, except `admissible_actions` and
    `action_descriptions`.

    Args:
        url: of the server.
        env: an id that it offers.
        token: None takes $HGPO_GYM_SERVER_TOKEN, if set.
        step_limit: steps until an episode is truncated; None: the environment's own, 0: never.
        timeout: seconds to wait for a response.
        render_mode: None or `ansi`.
        options: of the environment, if the server lets clients choose them.

    Raises:
        ConnectionError: no response, or not from such a server.
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
        self._request = {"environment": env, "options": options, "step_limit": step_limit}
        self._open()
        self._out_of_step = False
        self._sent: tuple[dict[str, Any], TurnReply | Exception | None] | None = None
        self._seed: int | None = None
        self._chance: int | None = None
        self._truncated = False
        self._task_type = ""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "A remote environment cannot be copied: its episode is on the server. Make another one, call "
            "reset(seed=...) with the same seed and task, and play the same actions."
        )

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode. Raises what `TextEnv.reset` does, and as the class."""
        self._seed, self._chance = None if seed is None else int(seed), None
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action; `truncated` at the step limit. Raises what `TextEnv.step` does, and as the class."""
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self._truncated, info

    def choose_task(self, options: Mapping[str, Any]) -> Any:
        """Return the requested task; None leaves the choice to the server."""
        return options.get("task_id")

    def begin_episode(self, task_id: str | None) -> Turn:
        try:
            return self._begin(task_id)
        except SessionLostError:
            if self._seed is None and self._turn:
                raise  # without a seed, a new session could not repeat its random events
        self._open()
        return self._begin(task_id)

    def _begin(self, task_id: str | None) -> Turn:
        self._sent = None
        if self._out_of_step:
            self._turn = self._connection.request(SessionTurn, "GET", self._path).turn
        return self._play("reset", self._numbered(seed=self._seed, task_id=task_id))

    @classmethod
    def send_actions(cls, envs: Sequence[Any], actions: Sequence[str]) -> None:
        """Step all environments of a server by one request; `take_action` takes the replies."""
        by_server: dict[tuple[str, str | None], list[tuple[RemoteTextEnv, str]]] = defaultdict(list)
        for env, action in zip(envs, actions, strict=True):
            by_server[env._connection.url, env._connection.token].append((env, action))
        for group in by_server.values():
            for first in range(0, len(group), _STEPS_TOGETHER):
                _step_together(group[first : first + _STEPS_TOGETHER])

    def take_action(self, action: str) -> Turn:
        fields, reply = self._sent or (self._step_fields(action), None)
        self._sent = None
        if reply is None:
            return self._play("step", fields)
        if isinstance(reply, Exception):
            raise reply
        return self._turn_of(reply)

    def task_type(self, task_id: str) -> str:  # noqa: ARG002 - the server tells that of the present task
        return self._task_type

    @property
    def np_random(self) -> np.random.Generator:
        """The generator. Nothing is drawn from it here; setting one seeds the server's random events from then on."""
        return super().np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self._np_random, self._np_random_seed = value, -1
        self._chance = int(value.integers(2**63))

    def close(self) -> None:
        """Close the session, if the server still answers. May be called twice."""
        if self._connection.closed:
            return
        # An unreachable server closes the session by itself after an idle time.
        with suppress(SessionLostError, ConnectionError):
            self._connection.request(Reply, "DELETE", self._path)
        self._connection.close()

    def _open(self) -> None:
        session = self._connection.request(SessionReply, "POST", "/sessions", self._request, repeatable=False)
        self._session, self._path, self._turn = session.session, f"/sessions/{session.session}", 0
        self.split = session.split
        self.task_ids = RemoteTaskIds(self._list_tasks, session.num_tasks)
        self.max_text_length = session.max_text_length
        self.observation_space = UnicodeText(self.max_text_length)
        self.action_space = UnicodeText(self.max_text_length)

    def _list_tasks(self, count: int | None = None, **query: Any) -> list[str]:
        task_ids = self._connection.request(TaskPageReply, "GET", f"{self._path}/tasks", **query).task_ids
        if count is not None and len(task_ids) != count:
            raise unlike_a_server(self._connection.url, f"with {len(task_ids)} tasks instead of {count}")
        return task_ids

    def _numbered(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of the next turn. By its number the server recognises a request that is sent again."""
        # Until the reply is here, the server may have played the turn or not.
        self._out_of_step = True
        return {"turn": self._turn + 1, **{name: value for name, value in fields.items() if value is not None}}

    def _step_fields(self, action: str) -> dict[str, Any]:
        seed, self._chance = self._chance, None
        return self._numbered(action=action, seed=seed)

    def _play(self, operation: str, fields: Mapping[str, Any]) -> Turn:
        return self._turn_of(self._connection.request(TurnReply, "POST", f"{self._path}/{operation}", fields))

    def _turn_of(self, reply: TurnReply) -> Turn:
        if reply.turn != self._turn + 1:
            raise unlike_a_server(self._connection.url, f"turn {self._turn + 1} with turn {reply.turn}")
        self._turn, self._truncated, self._out_of_step = reply.turn, reply.truncated, False
        self.task_id, self._task_type = reply.info.task_id, reply.info.task_type
        return Turn(
            reply.observation,
            task=reply.info.task,
            admissible_actions=tuple(reply.info.admissible_actions),
            reward=reply.reward,
            terminated=reply.terminated,
            won=reply.info.won,
            action_valid=reply.info.action_valid,
            extras=reply.info.extras(),
        )


def _step_together(group: Sequence[tuple[RemoteTextEnv, str]]) -> None:
    """Send the actions of environments on one server in one request."""
    connection = group[0][0]._connection
    fields = [env._step_fields(action) for env, action in group]
    steps = [{"session": env._session, **step} for (env, _), step in zip(group, fields, strict=True)]
    outcomes: list[TurnReply | Exception | None]
    try:
        replies = connection.request(StepReplies, "POST", "/steps", {"steps": steps}).replies
        if len(replies) != len(group):
            raise unlike_a_server(connection.url, f"{len(group)} steps with {len(replies)} replies")
        outcomes = [connection.turn_or_error(reply) for reply in replies]
    except ConnectionError as error:
        outcomes = [error] * len(group)
    except (RemoteError, ValueError):  # refused as a whole: each is sent alone
        outcomes = [None] * len(group)
    for (env, _), step, outcome in zip(group, fields, outcomes, strict=True):
        env._sent = step, outcome


class RemoteTaskIds(Sequence[str]):
    """The task ids of a session, fetched page by page at their first use.

    Args:
        list_tasks: the ids of a page, by their number and the server's `offset` and `limit`, or by `task_id`.
        total: the number of tasks.
    """

    def __init__(self, list_tasks: Callable[..., list[str]], total: int):
        self._list_tasks, self._total = list_tasks, total
        self._page = lru_cache(maxsize=_PAGES_KEPT)(self._fetch)

    def _fetch(self, number: int) -> list[str]:
        offset = number * _PAGE
        return self._list_tasks(min(_PAGE, self._total - offset), offset=offset, limit=_PAGE)

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, index: Any) -> Any:
        positions = range(self._total)[index]
        if isinstance(positions, range):
            return tuple(map(self.__getitem__, positions))
        page, offset = divmod(positions, _PAGE)
        return self._page(page)[offset]

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, str) and bool(self._list_tasks(task_id=task_id))
