"""Team: who answers, and when an answer is the action. Every answer is a row of the trajectory.

A team of your own is a class with `roles`, `next` and `prompt`; `register_team("my_team", MyTeam)` makes it a choice of
`team=`. It has no state: everything follows from what was said, so one object serves every episode.
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
    """An answer of a role."""

    role: str
    text: str


class Team(ABC):
    """Roles that answer in turn, until one answer after which the environment steps.

    A turn is what is said between two steps of the environment. The action is the last answer of `acting_role`; the
    reward belongs to the last answer of the turn, the penalty of an invalid action to the answer that was the action.
    """

    roles: tuple[str, ...]
    """The column `agent` is an index into them."""

    weights: str = "shared"
    """`shared`: one policy speaks for all roles. `adapter`: each role has a LoRA adapter over what all share."""

    @property
    def acting_role(self) -> str:
        """The role whose answers are actions of the environment; the last one, unless a team says otherwise."""
        return self.roles[-1]

    @abstractmethod
    def next(self, said: Sequence[Message], info: Mapping[str, Any]) -> str | None:
        """Who answers now; None ends the turn.

        Args:
            said: what `keep` left of earlier turns, and then what was said in this one.
            info: the environment's, at the present step.
        """

    @abstractmethod
    def prompt(self, role: str, prompt: str, said: Sequence[Message]) -> str:
        """What the role reads, from the step's prompt."""

    def answers(
        self,
        role: str,
        admissible_actions: tuple[str, ...],
        said: Sequence[Message],  # noqa: ARG002 - for subclasses
    ) -> tuple[str, ...]:
        """The answers that a role can choose among; empty where it speaks freely, as all but the acting one do here."""
        return admissible_actions if role == self.acting_role else ()

    def keep(self, said: Sequence[Message], turn: int) -> Sequence[Message]:  # noqa: ARG002 - for subclasses
        """What of it is still said in the next turn; nothing by default. `turn` counts from 0."""
        return ()


def check_weights(weights: str) -> str:
    """One of `WEIGHTS`, as it is. Raises ValueError if it is none."""
    if weights not in WEIGHTS:
        raise ValueError(unknown_name("team.weights", weights, WEIGHTS))
    return weights


class Solo(Team):
    """A team of one that adds no text: an agent by itself.

    Args:
        role: its name.
    """

    def __init__(self, role: str = ""):
        self.roles = (role,)

    def next(self, said: Sequence[Message], info: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - of Team
        return None if said else self.acting_role

    def prompt(self, role: str, prompt: str, said: Sequence[Message]) -> str:  # noqa: ARG002 - of Team
        return prompt


def with_outputs(prompt: str, said: Sequence[Message], instruction: str = "") -> str:
    """The prompt below what was said and an instruction. It comes last, because it ends where the answer begins."""
    outputs = [f'The output of "{role}": {text}' for role, text in said]
    return "\n".join([*outputs, *([instruction] if instruction else []), prompt])


def keys_of_role(keys: np.ndarray, role: str, said: Sequence[Message]) -> np.ndarray:
    """int64[K + 1]: the state's context keys, told apart by who is asked and what was said to it."""
    return link_text(keys, json.dumps([role, *said]))
