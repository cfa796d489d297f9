"""A Gymnasium Text space for anything a text environment can print or be told."""

import string
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Text

_CODE_POINTS = 0x110000


class _EveryCharacter(Sequence[str]):
    """All Unicode code points in order, without holding a million strings."""

    def __len__(self) -> int:
        return _CODE_POINTS

    def __getitem__(self, index: Any) -> Any:
        return chr(index)

    def __contains__(self, character: object) -> bool:
        return isinstance(character, str) and len(character) == 1

    def __iter__(self) -> Iterator[str]:
        return map(chr, range(_CODE_POINTS))


_EVERY_CHARACTER = _EveryCharacter()


class UnicodeText(Text):
    """Strings of `min_length` to `max_length` characters, every Unicode code point allowed.

    Gymnasium's own `Text` keeps its character set as a set of strings; here it is implicit, so that flattening and
    shared memory work on any text. Samples are drawn from printable ASCII.
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None):
        super().__init__(max_length, min_length=min_length, charset=string.printable, seed=seed)

    @property
    def character_set(self) -> frozenset[str]:
        return cast("frozenset[str]", _EVERY_CHARACTER)

    @property
    def character_list(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", _EVERY_CHARACTER)

    def character_index(self, char: str) -> np.int32:
        return np.int32(ord(char))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        length = int(self.np_random.integers(self.min_length, self.max_length + 1))
        return "".join(self.np_random.choice(list(string.printable), size=length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and (self.min_length, self.max_length) == (
            other.min_length,
            other.max_length,
        )

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"
