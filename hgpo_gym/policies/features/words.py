"""Parsed texts: words, amounts of money, and actions as a frame with arguments.

Nothing here depends on an environment. The only listed words are English function words.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from hgpo_gym.memory.keys import hash_text

LITTLE_WORDS = frozenset(
    """a an and any are as at be by can do for from has have i in into is it its me my no of off on onto or out over
    some than that the their them then there these this to under up using was what where which will with you
    your""".split()  # noqa: SIM905 - a list of sixty strings reads worse
)
"""Function words: they are never part of an argument, and never compared."""

_TOKEN = re.compile(r"[^\W_]+(?:[.'][^\W_]+)*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_AMOUNT = re.compile(r"[$€£]\s?(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?) (?:dollar|euro|pound|coin|credit|gold)s?\b")


class Argument(NamedTuple):
    """An argument of an action: `mug 1` in `take mug 1 from desk 2`.

    Attributes:
        name: the full name, which distinguishes things of a kind.
        words: its words, without numbers.
    """

    name: str
    words: tuple[str, ...]


class ParsedAction(NamedTuple):
    """A parsed action.

    Attributes:
        frame: its first word and the function words, with a gap for each argument: `take _ from _`.
        arguments: the arguments, in order of the gaps.
    """

    frame: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """A parsed instruction; compared and hashed by identity.

    Attributes:
        text: the unparsed text.
        words: the distinct words without numbers, in order.
        content: the content words, each with its position among them.
        before: the word before each content word.
        phrase: all words, each between spaces, to search for phrases.
        terms: see `terms_of`.
        amount: the largest amount of money; None if there is none.
    """

    text: str
    words: tuple[str, ...]
    content: dict[str, int]
    before: dict[str, str]
    phrase: str
    terms: frozenset[str]
    amount: float | None


def tokens(text: str) -> list[str]:
    """Return the words and numbers of a text, in lower case."""
    return _TOKEN.findall(text.lower())


def is_number(token: str) -> bool:
    return _NUMBER.fullmatch(token) is not None


@lru_cache(maxsize=1 << 16)
def content_of(text: str) -> tuple[str, ...]:
    """Return the distinct content words of a text: neither function words nor numbers."""
    return tuple(dict.fromkeys(word for word in tokens(text) if word not in LITTLE_WORDS and not is_number(word)))


@lru_cache(maxsize=1 << 14)
def terms_of(text: str) -> frozenset[str]:
    """Return the content words of a text, and its measures: a number with the next word."""
    words = tokens(text)
    measures = [f"{number} {unit}" for number, unit in pairwise(words) if is_number(number)]
    return frozenset((*content_of(text), *measures))


@lru_cache(maxsize=1 << 16)
def amounts(text: str) -> tuple[float, ...]:
    """Return the amounts of money in a text."""
    return tuple(float(before or after) for before, after in _AMOUNT.findall(text.lower()))


@lru_cache(maxsize=1 << 12)
def read_task(text: str) -> Task:
    words = tokens(text)
    content = [word for word in content_of(text) if word not in LITTLE_WORDS]
    before = {word: words[index - 1] if index else "" for index, word in reversed(list(enumerate(words)))}
    return Task(
        text,
        tuple(dict.fromkeys(word for word in words if not is_number(word))),
        {word: index for index, word in enumerate(content)},
        {word: before[word] for word in content},
        f" {' '.join(words)} ",
        terms_of(text),
        max(amounts(text), default=None),
    )


@lru_cache(maxsize=1 << 16)
def read_action(text: str) -> ParsedAction:
    """Return a parsed action. The first word is the verb; arguments follow, separated by function words. A number ends
    an argument."""
    words = tokens(text)
    frame, arguments = words[:1], list[Argument]()
    argument_words: list[str] = []

    def close() -> None:
        if argument_words:
            frame.append("_")
            arguments.append(
                Argument(" ".join(argument_words), tuple(word for word in argument_words if not is_number(word)))
            )
            argument_words.clear()

    for word in words[1:]:
        if word in LITTLE_WORDS:
            close()
            frame.append(word)
        else:
            argument_words.append(word)
            if is_number(word) and len(argument_words) > 1:
                close()
    close()
    return ParsedAction(" ".join(frame), tuple(arguments))


@lru_cache(maxsize=1 << 18)
def key(*parts: str | int) -> int:
    """Return a 64-bit hash of names and whole numbers, never 0."""
    return hash_text("\0".join(map(str, parts)))
