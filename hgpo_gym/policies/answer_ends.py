"""What ends a free answer, and the text that it then is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class AnswerEnds:
    """Tokens and texts that end an answer.

    Attributes:
        tokens: the last token is one of these.
        strings: the text has come to hold one of these.
        decode: the text of tokens, special tokens included.
    """

    tokens: frozenset[int]
    strings: tuple[str, ...]
    decode: Callable[[list[int]], str]

    def reached(self, token_ids: list[int]) -> bool:
        """Whether the last token ends the answer, which none before it did."""
        if token_ids[-1] in self.tokens:
            return True
        return bool(self.strings) and self._first(self.decode(token_ids[-self._tail :])) is not None

    def length(self, token_ids: list[int]) -> int:
        """How many tokens of an answer there are up to where it ends."""
        if not self.strings:
            return len(token_ids)
        return next((n for n in range(1, len(token_ids)) if self.reached(token_ids[:n])), len(token_ids))

    def text(self, token_ids: list[int]) -> str:
        """The text without the token that ends it. What ends it as a text is kept, and what its last token says after
        that is left out, as by vLLM's `include_stop_str_in_output`."""
        ends = bool(token_ids) and token_ids[-1] in self.tokens
        text = self.decode(token_ids[:-1] if ends else token_ids)
        return text[: self._first(text)]

    def _first(self, text: str) -> int | None:
        """Where the first of the strings that the text holds ends."""
        return min((text.find(string) + len(string) for string in self.strings if string in text), default=None)

    @cached_property
    def _tail(self) -> int:
        """The most tokens that a string can be spread over, each a byte of it, and one before: decoders treat the first
        in their own way."""
        return 1 + max(len(string.encode()) for string in self.strings)


def check_stops(stop: Sequence[str], stop_token_ids: Sequence[int], vocabulary: int) -> None:
    """Raise ValueError for a text or token that no answer can end by."""
    if isinstance(stop, str) or not all(isinstance(text, str) and text for text in stop):
        raise ValueError(f"engine.stop={stop!r}: expected a list of texts, none of them empty: ['</action>'].")
    if not all(isinstance(token, int) and 0 <= token < vocabulary for token in stop_token_ids):
        raise ValueError(
            f"engine.stop_token_ids={list(stop_token_ids)}: expected numbers of tokens, from 0 to {vocabulary - 1}."
        )
