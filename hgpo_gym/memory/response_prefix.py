"""The part of a response before its action: `plans` and `notes` are its two forms."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

KEEP_PROBABILITY = 0.75
"""The probability that a random prefix keeps the text that it carries."""


class PrefixReading(NamedTuple):
    """The parsed prefix of a response.

    Attributes:
        carried: the text that the next prompt and response depend on.
        in_form: the prefix has the requested form.
        columns: the numbers that a rollout records of it.
    """

    carried: str
    in_form: bool
    columns: Mapping[str, int]


class ResponsePrefix:
    """The part of a response before its action, and the text that it carries to the next response. This one is empty.

    Attributes:
        columns: the names of the numbers that `read` returns, with their types.
        literal_text: its fixed text.
    """

    columns: Mapping[str, type[np.generic]] = MappingProxyType({})
    literal_text: tuple[str, ...] = ()

    def show(self, prompt: str, carried: str) -> str:  # noqa: ARG002 - of prefixes that carry a text
        """Return the prompt with the carried text."""
        return prompt

    def write(self, action: str, carried: str) -> list[str]:  # noqa: ARG002
        """Return all prefixes before this action; the first changes the carried text least."""
        return [""]

    def teach(self, carried: str, expert_notes: str | None) -> str:  # noqa: ARG002
        """Return the text that an expert with these notes would carry."""
        return carried

    def sample(
        self,
        action: str,  # noqa: ARG002
        carried: str,
        generator: np.random.Generator,  # noqa: ARG002
        *,
        observation: str = "",  # noqa: ARG002
        expert_notes: str | None = None,  # noqa: ARG002
    ) -> tuple[str, str]:
        """Return a random prefix for a warm start, and the text that it carries to the next response."""
        return "", carried

    def rest(self, response: str) -> str:
        """Return the part of a response that its action is read from."""
        return response

    def read(self, response: str, carried: str, *, alone: bool = False) -> PrefixReading:  # noqa: ARG002
        """Parse the prefix of a response, or with `alone` a response that has no action after it."""
        return PrefixReading(carried, in_form=True, columns={})
