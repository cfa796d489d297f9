"""Requests and replies of the server, as /docs shows them. Requests have only these fields, each of this type."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Scalar = str | int | float | bool | None
Value = Scalar | list[Scalar]
TurnNumber = Annotated[
    int | None,
    Field(
        ge=1,
        description="The number of this turn: 1 for the session's first reset or step, one more for each that follows. "
        "A turn that is sent again is not played again: its stored response is sent. Without it, every request plays.",
    ),
]
Seed = Annotated[int | None, Field(ge=0, le=2**63 - 1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewSession(_Request):
    """An environment to play, with its options."""

    environment: str = Field(max_length=200, examples=["hgpo_gym/SignpostMaze-v0"], description="A listed id.")
    options: dict[str, Value] = Field(default={}, max_length=100, description="Of the environment's listed choices.")
    step_limit: int | None = Field(
        default=None,
        ge=0,
        lt=2**31,
        description="Steps until an episode is truncated; null: the environment's own, 0: never.",
    )


class Reset(_Request):
    """Begin an episode."""

    turn: TurnNumber = None
    seed: Seed = Field(default=None, description="Of all random events; null continues with the last seed.")
    task_id: str | None = Field(default=None, description="A task of the environment; null draws one.")


class Step(_Request):
    """Take one action."""

    turn: TurnNumber = None
    action: str = Field(examples=["walk on"], description="Any text; one that is not admissible changes nothing.")
    seed: Seed = Field(default=None, description="Of later random events; null continues without a new seed.")


class SessionStep(Step):
    """An action in one of several sessions."""

    session: str


class SessionSteps(_Request):
    """Take one action in each of several sessions."""

    steps: list[SessionStep] = Field(min_length=1, max_length=1024)


class Health(BaseModel):
    """The server is there."""

    status: str = Field(description="ok")
    version: str = Field(description="Of hgpo_gym.")
    sessions: int = Field(description="Now open, those included that are being opened or closed.")
    max_sessions: int


class Environment(BaseModel):
    """An environment on offer."""

    id: str
    description: str
    choices: dict[str, list[Value]] = Field(
        description="Options that a client may set, and to what; first the default."
    )


class Environments(BaseModel):
    """All environments on offer."""

    environments: list[Environment]


class TaskPage(BaseModel):
    """A page of the tasks of an environment, in their fixed order."""

    total: int = Field(description="Tasks in all.")
    offset: int = Field(description="Where the page begins.")
    task_ids: list[str]


class SessionInfo(BaseModel):
    """An environment that one client plays. The id is a secret: who knows it can play."""

    session: str
    environment: str
    split: str = Field(description="The tasks that are played.")
    num_tasks: int
    step_limit: int | None = Field(description="Steps until an episode is truncated; null: never.")
    max_text_length: int = Field(description="The longest action and observation, in characters.")
    turn: int = Field(description="Resets and steps so far.")
    idle_timeout: float = Field(description="Seconds after which an unused session is closed.")


class TurnResponse(BaseModel):
    """The environment's reply to a reset or a step: Gymnasium's five values."""

    turn: int = Field(description="The number of this turn.")
    observation: str
    reward: float
    terminated: bool = Field(description="The episode is over, won or lost.")
    truncated: bool = Field(description="The episode was truncated by the step limit.")
    info: dict[str, Any] = Field(
        description="Always has task_id, task_type, task (the instruction), admissible_actions (empty where any text "
        "may be sensible), won and, after a step, action_valid."
    )


class ProblemObject(BaseModel):
    """The reply to a request that fails (RFC 9457, application/problem+json)."""

    type: str = Field(examples=["unknown-task"])
    status: int
    detail: str
    remedy: str
    name: str | None = Field(default=None, description="The field or option that is wrong.")
    value: str | None = Field(default=None, description="The value that was given, shortened.")


class StepsResponse(BaseModel):
    """The replies of several sessions, in the order of the request. A problem concerns its session alone."""

    replies: list[TurnResponse | ProblemObject]
