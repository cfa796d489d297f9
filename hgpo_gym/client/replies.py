"""Replies of a server, checked: under its address, another program may answer anything."""

import json
import sys
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

R = TypeVar("R", bound="Reply")


class Reply(BaseModel):
    """A JSON object with these fields, each of this type, and others."""

    model_config = ConfigDict(strict=True)


class SessionReply(Reply):
    """Reply to `POST /sessions`. The id becomes part of paths."""

    session: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    split: str
    num_tasks: int = Field(ge=0, le=sys.maxsize)
    max_text_length: int = Field(ge=0, le=2**31)


class SessionTurn(Reply):
    """Reply to `GET /sessions/SESSION`, as far as it is read."""

    turn: int = Field(ge=0)


class TaskPageReply(Reply):
    """Reply to `GET /sessions/SESSION/tasks`."""

    task_ids: list[str]


class Info(Reply):
    """`info` of a turn; `model_extra` has what else the environment reports."""

    model_config = ConfigDict(strict=True, extra="allow")
    task_id: str
    task_type: str
    task: str
    admissible_actions: list[str]
    won: bool
    action_valid: bool = True
    action_descriptions: list[str] | None = None

    def extras(self) -> dict[str, Any]:
        """Return what the environment reports beside the keys that `TextEnv` sets."""
        described = self.action_descriptions
        return (self.model_extra or {}) | ({} if described is None else {"action_descriptions": tuple(described)})


class TurnReply(Reply):
    """Reply to a reset or a step."""

    turn: int
    observation: str
    reward: float = Field(allow_inf_nan=False)
    terminated: bool
    truncated: bool
    info: Info


class StepReplies(Reply):
    """Reply to `POST /steps`: for each session a TurnReply or a ProblemReply."""

    replies: list[dict[str, Any]]


class ProblemReply(Reply):
    """Problem object (RFC 9457)."""

    type: str
    detail: str
    remedy: str
    name: str | None = None
    value: str | None = None


def parsed(url: str, content: bytes) -> Any:
    """Return parsed JSON. Raises ConnectionError if it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise unlike_a_server(url, f"with text that is no JSON ({error})") from error


def checked(url: str, kind: type[R], content: Any) -> R:
    """Return a reply of this kind. Raises ConnectionError if it is another."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "all"
        raise unlike_a_server(url, f"with another {kind.__name__} ({place[:100]}: {first['msg']})") from error


def unlike_a_server(url: str, how: str) -> ConnectionError:
    """Return the error for a reply that `hgpo-gym serve` does not give."""
    return ConnectionError(f"{url} answers {how}, not as 'hgpo-gym serve' of this version does: check url=.")
