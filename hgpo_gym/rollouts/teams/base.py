"""Team: the roles that respond, and the response that is the action. Every response is a row of the trajectory.

To add a team, write a class with `roles`, `next` and `prompt`. `register_team("my_team", MyTeam)` makes it a choice of
`team=`. A team has no state: everything follows from the messages, so one object serves every episode.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.memory.keys import link_text
from hgpo_gym.suggest import unknown_name

WEIGHTS = ("shared", "adapter")


class Message(NamedTuple):
    """The response of a role."""

    role: str
    text: str


class Team(ABC):
    """Roles that respond one after another, until the environment steps.

    A turn is all messages between two environment steps. The action is the last response of `acting_role`. The reward
    belongs to the last response of the turn. The penalty of an invalid action belongs to the response that was the
    action.
    """

    roles: tuple[str, ...]
    """The role names; the column `agent` is an index into them."""

    weights: str = "shared"
    """`shared`: one policy plays all roles. `adapter`: each role has a LoRA adapter on a shared base model."""

    @property
    def acting_role(self) -> str:
        """Return the role whose responses are actions of the environment; the last one by default."""
        return self.roles[-1]

    @abstractmethod
    def next(self, messages: Sequence[Message], info: Mapping[str, Any]) -> str | None:
        """Return the role that responds next; None ends the turn.

        Args:
            messages: those that `keep` returned for earlier turns, then those of this turn.
            info: the environment's, at the current step.
        """

    @abstractmethod
    def prompt(self, role: str, prompt: str, messages: Sequence[Message]) -> str:
        """Return the role's prompt, made from the step's prompt and the messages."""

    def allowed_responses(
        self,
        role: str,
        admissible_actions: tuple[str, ...],
        messages: Sequence[Message],  # noqa: ARG002 - for subclasses
    ) -> tuple[str, ...]:
        """Return the allowed responses of a role; empty for free text, the default of all roles that do not act."""
        return admissible_actions if role == self.acting_role else ()

    def keep(self, messages: Sequence[Message], turn: int) -> Sequence[Message]:  # noqa: ARG002 - for subclasses
        """Return the messages that carry over to the next turn; none by default. `turn` counts from 0."""
        return ()


def check_weights(weights: str) -> str:
    """Return `weights` unchanged. Raise ValueError unless it is one of `WEIGHTS`."""
    if weights not in WEIGHTS:
        raise ValueError(unknown_name("team.weights", weights, WEIGHTS))
    return weights


class Solo(Team):
    """A single agent as a team of one role; adds no text.

    Args:
        role: name of the agent.
    """

    def __init__(self, role: str = ""):
        self.roles = (role,)

    def next(self, messages: Sequence[Message], info: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - of Team
        return None if messages else self.acting_role

    def prompt(self, role: str, prompt: str, messages: Sequence[Message]) -> str:  # noqa: ARG002 - of Team
        return prompt


def with_outputs(prompt: str, messages: Sequence[Message], instruction: str = "") -> str:
    """Return the messages, the instruction and the prompt. The prompt comes last: the response continues it."""
    outputs = [f'The output of "{role}": {text}' for role, text in messages]
    return "\n".join([*outputs, *([instruction] if instruction else []), prompt])


def keys_of_role(keys: np.ndarray, role: str, messages: Sequence[Message]) -> np.ndarray:
    """Return context keys int64[K + 1] that also depend on the role and the messages it has read."""
    return link_text(keys, json.dumps([role, *messages]))
