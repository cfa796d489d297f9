"""The tokens and texts that end a free response, and the response's text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ResponseEnds:
    """Tokens and texts that end a response.

    Attributes:
        tokens: token ids that end it.
        strings: texts that end it as soon as it contains one of them.
        decode: returns the text of tokens, special tokens included.
    """

    tokens: frozenset[int]
    strings: tuple[str, ...]
    decode: Callable[[list[int]], str]

    def reached(self, token_ids: list[int]) -> bool:
        """Return True if the last token ends the response. No earlier token may have ended it."""
        if token_ids[-1] in self.tokens:
            return True
        return bool(self.strings) and self._first(self.decode(token_ids[-self._tail :])) is not None

    def length(self, token_ids: list[int]) -> int:
        """Return the number of tokens up to the end of the response."""
        if not self.strings:
            return len(token_ids)
        return next((n for n in range(1, len(token_ids)) if self.reached(token_ids[:n])), len(token_ids))

    def text(self, token_ids: list[int]) -> str:
        """Return the text without the token that ends it. A text that ends it is kept, and characters of the last token
        after that are removed, as by vLLM's `include_stop_str_in_output`."""
        ends = bool(token_ids) and token_ids[-1] in self.tokens
        text = self.decode(token_ids[:-1] if ends else token_ids)
        return text[: self._first(text)]

    def _first(self, text: str) -> int | None:
        """Return the index after the first stop text; None if there is none."""
        return min((text.find(string) + len(string) for string in self.strings if string in text), default=None)

    @cached_property
    def _tail(self) -> int:
        """The most tokens that a stop text can span, one a byte, and one more: decoders treat the first token
        differently."""
        return 1 + max(len(string.encode()) for string in self.strings)


def check_stops(stop: Sequence[str], stop_token_ids: Sequence[int], vocabulary: int) -> None:
    """Raise ValueError for a text or token that cannot end a response."""
    if isinstance(stop, str) or not all(isinstance(text, str) and text for text in stop):
        raise ValueError(f"engine.stop={stop!r}: expected a list of texts, none of them empty: ['</action>'].")
    if not all(isinstance(token, int) and 0 <= token < vocabulary for token in stop_token_ids):
        raise ValueError(
            f"engine.stop_token_ids={list(stop_token_ids)}: expected numbers of tokens, from 0 to {vocabulary - 1}."
        )
