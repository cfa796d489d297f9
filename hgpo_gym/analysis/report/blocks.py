"""The blocks of a report, independent of its format: sections of paragraphs, tables and pictures."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Literal

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from hgpo_gym.analysis.report.intervals import Estimate

Form = Literal["text", "prose", "share", "points", "number", "signed", "whole", "seconds", "probability", "rank"]
"""The format of a column's values. prose: text that may need several lines; share: 0.25 is 25 %; points: 0.25 is 25
points of success; rank: an interval without width means certainty, not a lack of information."""

UNITS = {"share": " %", "seconds": " s"}
NOTHING = "-"

Value = str | float | int | Estimate | None


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Items:
    """Sentences as a list."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Commands or settings, printed verbatim."""

    text: str


@dataclass(frozen=True)
class Outline:
    """A line, and the branches below it."""

    text: str
    branches: "tuple[Outline, ...]" = ()


@dataclass(frozen=True)
class Column:
    title: str
    form: Form = "text"


@dataclass(frozen=True)
class Table:
    """Rows of values under columns.

    Attributes:
        name: the name of its CSV file.
        caption: what it shows, in a sentence or two.
        columns, rows: a value for each column in every row; None for an unknown value.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Table {self.name}: {len(row)} values in a row of {len(self.columns)} columns.")

    def texts(self) -> list[list[str]]:
        """Return the text of every cell."""
        return [
            [write(value, column.form) for value, column in zip(row, self.columns, strict=True)] for row in self.rows
        ]

    def records(self) -> tuple[list[str], list[list[str | float | int | None]]]:
        """Return header and rows for CSV: plain numbers, an interval as two more columns."""
        intervals = [any(isinstance(row[index], Estimate) for row in self.rows) for index in range(len(self.columns))]
        header: list[str] = []
        for column, interval in zip(self.columns, intervals, strict=True):
            header += [column.title, *([f"{column.title}, low", f"{column.title}, high"] if interval else [])]
        rows = []
        for row in self.rows:
            cells: list[str | float | int | None] = []
            for value, interval in zip(row, intervals, strict=True):
                if isinstance(value, Estimate):
                    cells += [
                        float(value.value),
                        *(None if end is None else float(end) for end in (value.low, value.high)),
                    ]
                else:
                    cells += [value, *([None, None] if interval else [])]
            rows.append(cells)
        return header, rows


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure with its caption.

    Attributes:
        name: the name of its SVG file.
        caption: what it shows, in a sentence or two.
        figure: drawn by matplotlib.
    """

    name: str
    caption: str
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """The SVG text, reproducible, with letters as outlines, so that the picture looks the same everywhere."""
        # A fixed salt and no date: matplotlib 3 otherwise writes random ids and the time into the file.
        with mpl.rc_context({"svg.hashsalt": "hgpo_gym"}):
            file = io.StringIO()
            FigureCanvasSVG(self.figure).print_svg(file, metadata={"Date": None})
        return file.getvalue()


Block = Paragraph | Items | Code | Outline | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading with its blocks.

    Attributes:
        title: its heading.
        blocks: its blocks in order; adjacent pictures are placed side by side if there is room.
        folded: shown on demand if the format can do that; not shown in a terminal.
        headline: one of the few sections that are shown if there is little room.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    headline: bool = False


@dataclass(frozen=True)
class Chapter:
    """The sections of one comparison. `slug` begins the names of its files; empty if there is one chapter."""

    title: str
    slug: str
    sections: Sequence[Section] = field(default_factory=tuple)


def write(value: Value, form: Form) -> str:
    """Return the text of a value; an estimate has its interval in brackets."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    unit = UNITS.get(form, "")
    if not isinstance(value, Estimate):
        return _number(value, form) + (unit if isfinite(value) else "")
    text = write(float(value.value), form)
    if value.low is None or not isfinite(value.low):
        return text
    if value.no_spread and form != "rank":
        return f"{text} (no spread)"
    return f"{text} ({_number(float(value.low), form)} to {_number(float(value.high), form)})"


def _number(value: float, form: Form) -> str:
    if not isfinite(value):
        return "never" if value > 0 else NOTHING
    match form:
        case "share" | "points":
            return f"{100 * value:.1f}"
        case "whole":
            return f"{value:,.0f}"
        case "seconds":
            return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
        case "signed":
            return f"{value:+.3f}" if value else "0"
        case "probability":
            return f"{value:.2f}"
        case _:
            return f"{value:.3g}"
