"""Text from games, models and run directories, made harmless for terminals, spreadsheets and pages."""

import io
import re
import sys
from collections.abc import Sequence

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and line feed, marks that change the writing direction, and lone surrogates, which no
stream can encode."""
_FORMULA = (*"=+-@\t\r", *"\uff1d\uff0b\uff0d\uff20")
"""A cell that begins with one of these is a formula, the fullwidth signs included."""


def for_terminal(text: str) -> str:
    """Return the text with control characters escaped as Python writes them: `\\x1b[31m`."""
    return _COMMANDS.sub(lambda match: ascii(match[0])[1:-1], text)


def print_any_text(encoding: str | None = None) -> None:
    """Make standard output and error escape characters that their encoding lacks (`\\xe9` in the C locale), instead of
    raising. `encoding` replaces the locale's."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook's is none, and takes all text
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def for_spreadsheet(text: str) -> str:
    """Return the text with an apostrophe in front if a spreadsheet would read it as a formula."""
    return for_terminal(f"'{text}" if text.startswith(_FORMULA) else text)


def for_markdown(text: str) -> str:
    """Return the text on one line, without HTML, links or pictures."""
    return re.sub(r"<|\](?=[(\[])", lambda match: f"\\{match[0]}", for_terminal(text).replace("\n", " "))


def counted(number: int, noun: str) -> str:
    """Return a number with a regular noun: `1 episode`, `2,000 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_of(things: Sequence[object], limit: int = 3) -> str:
    """Return the first things and the number of further ones: `a, b, c and 2 more`."""
    more = f" and {len(things) - limit:,} more" if len(things) > limit else ""
    return ", ".join(map(str, things[:limit])) + more
