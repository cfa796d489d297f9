"""What a report is made of, whatever it is written as: sections of paragraphs, tables and pictures."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Literal

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from hgpo_gym.analysis.report.intervals import Estimate

Form = Literal["text", "prose", "share", "points", "number", "signed", "whole", "seconds", "probability", "rank"]
"""How the values of a column are written. prose: text that may need several lines; share: 0.25 is 25 %; points: 0.25 is
25 points of success; rank: an interval without width is a sure one, not one that says nothing."""

RESOLUTION = 160
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
    """Commands or settings, as they are."""

    text: str


@dataclass(frozen=True)
class Tree:
    """A line, and the trees that hang on it."""

    text: str
    branches: "tuple[Tree, ...]" = ()


@dataclass(frozen=True)
class Column:
    title: str
    form: Form = "text"


@dataclass(frozen=True)
class Table:
    """Rows of values under columns.

    Attributes:
        name: of its CSV file.
        caption: what it shows, in a sentence or two.
        columns, rows: a value for each column in every row; None where there is nothing to say.
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
        """Every cell as a person reads it."""
        return [
            [write(value, column.form) for value, column in zip(row, self.columns, strict=True)] for row in self.rows
        ]

    def records(self) -> tuple[list[str], list[list[str | float | int | None]]]:
        """Header and rows for CSV: plain numbers, an interval as two more columns."""
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
    """A matplotlib figure with the words that go under it.

    Attributes:
        name: of its PNG and SVG files.
        caption: what it shows, in a sentence or two.
        figure: drawn by matplotlib.
    """

    name: str
    caption: str
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """Letters are outlines: the picture looks the same everywhere, and is the same text every time."""
        with mpl.rc_context({"svg.hashsalt": "hgpo_gym"}):
            file = io.StringIO()
            FigureCanvasSVG(self._laid_out).print_svg(file, metadata={"Date": None})
        return file.getvalue()

    @cached_property
    def png(self) -> bytes:
        file = io.BytesIO()
        figure = self._laid_out
        figure.dpi = RESOLUTION
        FigureCanvasAgg(figure).print_png(file)
        return file.getvalue()

    @cached_property
    def _laid_out(self) -> Figure:
        """With everything in its place, once for both formats: `savefig` would draw it all for that, each time."""
        if engine := self.figure.get_layout_engine():
            engine.execute(self.figure)
            self.figure.set_layout_engine("none")
        return self.figure


Block = Paragraph | Items | Code | Tree | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it.

    Attributes:
        title: its heading.
        blocks: in order; pictures that follow each other stand side by side where there is room.
        folded: shown on demand where the format can do that; not in a terminal.
        headline: belongs to the few that are shown where there is little room.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    headline: bool = False


@dataclass(frozen=True)
class Chapter:
    """The sections of one comparison. `slug` tells its files from those of other chapters; empty if there is one."""

    title: str
    slug: str
    sections: Sequence[Section] = field(default_factory=tuple)


def write(value: Value, form: Form) -> str:
    """A value as a person reads it; an estimate with its interval in brackets."""
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
