"""Notes in responses: `<memory>...</memory>` is shown in the next prompts, until the agent writes again.

A response without notes keeps those before it. `memory=notes` asks for this form.
"""

import string
from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from hgpo_gym.memory.response_prefix import KEEP_PROBABILITY, PrefixReading, ResponsePrefix

OPEN, CLOSE = "<memory>", "</memory>"
NOTES_COLUMN = "notes_length"
"""The column of a rollout with the characters of the notes that are in force after each response."""
_MOST_WORDS = 20
"""The longest note in a warm start without an expert's notes."""


class NotesReading(NamedTuple):
    """A response in two parts.

    Attributes:
        notes: stripped; None if the response has none.
        rest: the response without its notes.
        in_form: every tag has its counterpart.
    """

    notes: str | None
    rest: str
    in_form: bool


def write_notes(notes: str) -> str:
    """Return the part of a response that holds these notes."""
    return f"{OPEN}{notes}{CLOSE}"


def read_notes(response: str) -> NotesReading:
    """Return the last closed `<memory>` of a response and the text around it, in linear time."""
    end = response.rfind(CLOSE)
    start = response.rfind(OPEN, 0, max(0, end))
    if end < 0 or start < 0:
        return NotesReading(None, response, in_form=OPEN not in response and CLOSE not in response)
    rest = response[:start] + response[end + len(CLOSE) :]
    return NotesReading(response[start + len(OPEN) : end].strip(), rest, in_form=OPEN not in rest and CLOSE not in rest)


class NotesPrefix(ResponsePrefix):
    """Notes, which are also what it carries.

    Args:
        line: the text above the prompt; may use {notes}.
        beside: responses hold notes and an action; otherwise notes are responses of their own.
    """

    columns = MappingProxyType({NOTES_COLUMN: np.int64})

    def __init__(self, line: str, *, beside: bool = True):
        self._line, self._beside = line, beside
        self.literal_text = (*(text for text, *_ in string.Formatter().parse(line)), write_notes(""), "none")

    def show(self, prompt: str, carried: str) -> str:
        return self._line.format(notes=carried or "none") + prompt

    def write(self, action: str, carried: str) -> list[str]:  # noqa: ARG002 - of ResponsePrefix
        return [write_notes(carried) if self._beside else ""]

    def teach(self, carried: str, expert_notes: str | None) -> str:
        return carried if expert_notes is None else expert_notes

    def sample(
        self,
        action: str,  # noqa: ARG002 - of ResponsePrefix
        carried: str,
        generator: np.random.Generator,
        *,
        observation: str = "",
        expert_notes: str | None = None,
    ) -> tuple[str, str]:
        if not self._beside:
            return "", carried
        notes = sample_notes(carried, generator, observation) if expert_notes is None else expert_notes
        return write_notes(notes), notes

    def rest(self, response: str) -> str:
        return read_notes(response).rest if self._beside else response

    def read(self, response: str, carried: str, *, alone: bool = False) -> PrefixReading:
        notes, _, in_form = read_notes(response)
        if alone:
            carried = whole_notes(response)
        elif self._beside and notes is not None:
            carried = notes
        return PrefixReading(carried, in_form or not self._beside, {NOTES_COLUMN: len(carried)})


def whole_notes(response: str) -> str:
    """Return the notes of a response that holds nothing else, with or without tags."""
    notes = read_notes(response).notes
    return response.strip() if notes is None else notes


def sample_notes(notes: str, generator: np.random.Generator, observation: str) -> str:
    """Return random notes for a warm start without an expert: those so far, or the beginning of the observation."""
    return notes if generator.random() < KEEP_PROBABILITY else " ".join(observation.split()[:_MOST_WORDS])


def latest_notes(responses: Sequence[str], notes: str) -> str:
    """Return the notes in force after these responses, given those before."""
    for response in responses:
        new = read_notes(response).notes
        notes = notes if new is None else new
    return notes
