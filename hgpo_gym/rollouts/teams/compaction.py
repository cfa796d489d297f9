"""Compaction: before some actions, the role `memory` writes the notes that replace the history in prompts."""

from collections.abc import Mapping, Sequence
from typing import Any

from hgpo_gym.rollouts.teams.base import Message, Team

MEMORY = "memory"


class Compaction(Team):
    """A team with one more role, `memory`, which responds first where the memory asks for notes (`Context.due`).

    Its response is a row with an advantage of its own. The other roles do not read it as a message: their prompts show
    the notes.

    Args:
        team: the roles that act.
    """

    def __init__(self, team: Team):
        self._team = team
        self.roles = (*team.roles, MEMORY)
        self.weights = team.weights

    @property
    def acting_role(self) -> str:
        return self._team.acting_role

    def next(self, messages: Sequence[Message], info: Mapping[str, Any]) -> str | None:
        if info["context"].due and not has_notes(messages):
            return MEMORY
        return self._team.next(_without_notes(messages), info)

    def prompt(self, role: str, prompt: str, messages: Sequence[Message]) -> str:
        return prompt if role == MEMORY else self._team.prompt(role, prompt, _without_notes(messages))

    def allowed_responses(
        self, role: str, admissible_actions: tuple[str, ...], messages: Sequence[Message]
    ) -> tuple[str, ...]:
        if role == MEMORY:
            return ()
        return self._team.allowed_responses(role, admissible_actions, _without_notes(messages))

    def keep(self, messages: Sequence[Message], turn: int) -> Sequence[Message]:
        return self._team.keep(_without_notes(messages), turn)


def has_notes(messages: Sequence[Message]) -> bool:
    """Return True if the role `memory` has responded in this turn."""
    return any(message.role == MEMORY for message in messages)


def _without_notes(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role != MEMORY]
