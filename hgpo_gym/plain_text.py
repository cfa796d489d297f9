"""Text of others (games, models, run directories) where a terminal, a spreadsheet or a page would obey it."""

import io
import re
import sys
from collections.abc import Sequence

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line feed, separators and marks that turn the direction of writing, and halves of
surrogate pairs, which no stream takes."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def for_terminal(text: str) -> str:
    """The same with characters that a terminal would obey written out, as Python writes them: `\\x1b[31m`."""
    return _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)


def print_any_text(encoding: str | None = None) -> None:
    """From now on this process writes out characters that its output has no code for, as Python writes them, instead
    of an error: `\\xe9` where the locale is C. `encoding` replaces that of the locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook's is none, and takes all text
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def for_spreadsheet(text: str) -> str:
    """The same, which no spreadsheet takes for a formula: an apostrophe before what begins like one."""
    return for_terminal(f"'{text}" if text.startswith(_FORMULA) else text)


def for_markdown(text: str) -> str:
    """The same, no part of which is HTML, a link or a picture, on a line of its own."""
    return re.sub(r"<|\](?=[(\[])", lambda found: f"\\{found[0]}", for_terminal(text).replace("\n", " "))


def counted(number: int, thing: str) -> str:
    """How many there are of a regular noun: `1 episode`, `2,000 episodes`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def first_of(things: Sequence[object], most: int = 3) -> str:
    """The first ones, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {len(things) - most:,} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more
