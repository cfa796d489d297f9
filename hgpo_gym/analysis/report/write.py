"""The chapters of a report as HTML, Markdown, CSV and picture files."""

import base64
import csv
import io
import re
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Literal

import rich.table
import rich.tree
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hgpo_gym.analysis.pages import render
from hgpo_gym.analysis.report.blocks import (
    Block,
    Chapter,
    Code,
    Column,
    Items,
    Outline,
    Paragraph,
    Picture,
    Section,
    Table,
)
from hgpo_gym.files import NotPlainError, open_plain, write_whole
from hgpo_gym.plain_text import for_markdown, for_spreadsheet, for_terminal

_FILES = ".report_files"
"""The file in a report's folder that lists its files."""
_WORDS = ("text", "prose")
"""Forms of left-aligned columns; numbers are right-aligned."""
_BETWEEN = 3
"""Characters between two columns in a terminal."""
_BREAKABLE = 8
"""In a terminal, longer words of text are broken."""
_LABEL = 24
"""In a terminal, labels of rows up to this length stay on one line."""


def replace_earlier(out: Path, chapters: Sequence[Chapter]) -> None:
    """Write the list of files of a report on `chapters`, and remove the files of an earlier one that it lacks."""
    names = [
        "report.html",
        "report.md",
        *(f"tables/{slug}{table.name}.csv" for slug, table in _of_kind(chapters, Table)),
    ]
    for slug, picture in _of_kind(chapters, Picture):
        names.append(f"figures/{slug}{picture.name}.svg")
    for folder in (out / "tables", out / "figures"):
        if folder.is_symlink():  # a copied report must not redirect our writes
            folder.unlink()
    earlier: list[str] = []
    with suppress(FileNotFoundError, NotPlainError), open_plain(out / _FILES) as file:
        earlier = file.read().decode(errors="replace").splitlines()
    for name in set(earlier) - set(names):
        if Path(name).parent in (Path("tables"), Path("figures")):  # the list may be forged: remove nothing else
            with suppress(OSError, ValueError):
                (out / name).unlink()
    write_whole(out / _FILES, "\n".join(names))


def html_page(title: str, chapters: Sequence[Chapter], made_by: str) -> str:
    """Return the report as one self-contained page."""
    return render(
        "report.html",
        title=title,
        made_by=made_by,
        chapters=[
            {
                "title": chapter.title,
                "sections": [_section_for_page(section, chapter.slug) for section in chapter.sections],
            }
            for chapter in chapters
        ],
    )


def write_html(title: str, chapters: Sequence[Chapter], made_by: str, path: Path) -> None:
    """Write the report as one self-contained page."""
    path.write_text(html_page(title, chapters, made_by), encoding="utf-8")


def markdown_page(title: str, chapters: Sequence[Chapter], made_by: str) -> str:
    """Return the report as Markdown; pictures are links into `figures/`."""
    lines = [f"# {for_markdown(title)}", ""]
    for chapter in chapters:
        lines += [f"## {for_markdown(chapter.title)}", ""] if chapter.title else []
        for section in chapter.sections:
            lines += [f"### {for_markdown(section.title)}", ""] if section.title else []
            for block in section.blocks:
                lines += [*_markdown(block, chapter.slug), ""]
    return "\n".join([*lines, made_by, ""])


def show(title: str, chapters: Sequence[Chapter], console: Console, *, headlines: bool = False) -> None:
    """Print chapters in a terminal, without pictures and folded sections. With `headlines`, print headlines only."""
    console.print(_text(title, style="bold"))
    for chapter in chapters:
        for section in chapter.sections:
            if section.headline if headlines else not section.folded:
                console.print(_text(f"\n{section.title}", style="bold underline"))
                for block in section.blocks:
                    _show(block, console)


def write_tables(chapters: Sequence[Chapter], folder: Path) -> None:
    """Write a CSV file for every table: plain numbers, intervals as two more columns."""
    folder.mkdir(parents=True, exist_ok=True)
    for slug, table in _of_kind(chapters, Table):
        header, rows = table.records()
        text = io.StringIO()
        writer = csv.writer(text)
        for row in (header, *rows):
            writer.writerow([for_spreadsheet(cell) if isinstance(cell, str) else cell for cell in row])
        write_whole(folder / f"{slug}{table.name}.csv", text.getvalue())


def write_figures(chapters: Sequence[Chapter], folder: Path) -> None:
    """Write an SVG file for every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    for slug, picture in _of_kind(chapters, Picture):
        write_whole(folder / f"{slug}{picture.name}.svg", picture.svg)


def _of_kind(chapters: Sequence[Chapter], kind: type) -> list[tuple[str, Any]]:
    return [
        (chapter.slug, block)
        for chapter in chapters
        for section in chapter.sections
        for block in section.blocks
        if isinstance(block, kind)
    ]


def _section_for_page(section: Section, slug: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    for are_pictures, run in groupby(section.blocks, lambda block: isinstance(block, Picture)):
        if are_pictures:
            blocks.append({"kind": "pictures", "pictures": [_picture_for_page(block) for block in run]})
        else:
            blocks += [_block_for_page(block, slug) for block in run]
    return {"title": section.title, "folded": section.folded, "blocks": blocks}


def _picture_for_page(picture: Any) -> dict[str, Any]:
    return {"caption": picture.caption, "data": base64.b64encode(picture.svg.encode()).decode()}


def _block_for_page(block: Block, slug: str) -> dict[str, Any]:
    if isinstance(block, Table):
        return {
            "kind": "table",
            "name": f"{slug}{block.name}",
            "caption": block.caption,
            "columns": block.columns,
            "rows": block.texts(),
        }
    if isinstance(block, Items):
        return {"kind": "items", "texts": block.texts}
    if isinstance(block, Outline):
        return {"kind": "tree", "tree": block}
    assert isinstance(block, Paragraph | Code)
    return {"kind": type(block).__name__.lower(), "text": block.text}


def _show(block: Block, console: Console) -> None:
    match block:
        case Paragraph(text) | Code(text):
            console.print(_text(text))
        case Items(texts):
            console.print(_text("\n".join(f"- {text}" for text in texts)))
        case Outline():
            console.print(_hang(block, rich.tree.Tree(_text(block.text))))
        case Table():
            _show_table(block, console)


def _show_table(table_block: Table, console: Console) -> None:
    """Print as many columns, from the left, as fit without breaking numbers, then the names of the others."""
    console.print(_text(table_block.caption, style="dim"))
    rows = table_block.texts()
    widths = _widths(table_block.columns, rows, console.width)
    table = rich.table.Table(show_edge=False, pad_edge=False)
    for column, width in zip(table_block.columns, widths, strict=False):
        justify: Literal["left", "right"] = "left" if column.form in _WORDS else "right"
        table.add_column(_text(column.title), justify=justify, overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(_text, row[: len(widths)]))
    console.print(table)
    if hidden_columns := table_block.columns[len(widths) :]:
        names = ", ".join(column.title for column in hidden_columns)
        console.print(
            _text(f"Left out in {console.width} characters a line (COLUMNS=300: more): {names}.", style="dim")
        )


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of the columns that fit into `room`: at least the longest word, plus spare room."""
    minimum, preferred = [], []
    for index, column in enumerate(columns):
        cells = [for_terminal(text) for text in (column.title, *(row[index] for row in rows))]
        word = max(cell_len(word) for text in cells for word in text.split() or [""])
        preferred.append(max(map(cell_len, cells)))
        if column.form in _WORDS:
            is_label = index == 0 and preferred[0] <= _LABEL
            minimum.append(preferred[0] if is_label else min(word, _BREAKABLE))
        else:
            minimum.append(word)
    end_positions = list(accumulate(minimum, lambda total, width: total + _BETWEEN + width))
    # At least one column is shown, even if it is wider than the room.
    widths = minimum[: max(bisect_right(end_positions, room), 1)]
    spare = room - end_positions[len(widths) - 1]
    for index in sorted(range(len(widths)), key=lambda index: preferred[index] - minimum[index]):
        extra = min(preferred[index] - minimum[index], max(spare, 0))
        widths[index] += extra
        spare -= extra
    return widths


def _text(text: str, style: str = "") -> Text:
    return Text(for_terminal(text), style)


def _hang(block: Outline, tree: rich.tree.Tree) -> rich.tree.Tree:
    for branch in block.branches:
        _hang(branch, tree.add(_text(branch.text)))
    return tree


def _markdown(block: Block, slug: str) -> list[str]:
    match block:
        case Paragraph(text):
            return [for_markdown(text)]
        case Items(texts):
            return [f"- {for_markdown(text)}" for text in texts]
        case Outline():
            return _markdown_tree(block, "")
        case Code(text):
            # The fence must be longer than any run of backticks in the text.
            fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
            return [fence, for_terminal(text), fence]
        case Picture(name, caption):
            caption_text = for_markdown(caption)
            return [f"![{caption_text}](figures/{slug}{name}.svg)", "", caption_text]
        case Table(_, caption, columns):
            titles = [column.title for column in columns]
            rule = ["---" if column.form in _WORDS else "---:" for column in columns]
            return [for_markdown(caption), "", *(_markdown_row(cells) for cells in (titles, rule, *block.texts()))]


def _markdown_tree(tree: Outline, indent: str) -> list[str]:
    return [
        f"{indent}- {for_markdown(tree.text)}",
        *(line for branch in tree.branches for line in _markdown_tree(branch, indent + "  ")),
    ]


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(for_markdown(cell).replace('|', chr(92) + '|') for cell in cells)} |"
