"""Reports on finished runs: `write_report`."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from hgpo_gym.analysis.report.chapters import comparison_chapter, left_out, notes_chapter, overview_chapter
from hgpo_gym.analysis.report.figures import styles
from hgpo_gym.analysis.report.load import comparisons, load_runs
from hgpo_gym.analysis.report.write import (
    replace_earlier,
    show,
    write_figures,
    write_html,
    write_markdown,
    write_tables,
)
from hgpo_gym.files import writing


def write_report(
    directories: Sequence[Path], out: Path, *, threshold: float = 0.8, console: Console | None = None
) -> Path:
    """Compare the finished runs in `directories` and write what comes out into the folder `out`.

    `report.html` (self-contained), `report.md`, `tables/*.csv`, `figures/*.png` and `figures/*.svg`. The same runs give
    the same files. Runs are compared where they differ in nothing but the algorithm and the training seed; other runs
    get a chapter of their own.

    Args:
        directories: runs, or folders of runs at any depth.
        out: is made if it is not there; a report in it is replaced, files that the new one does not have are removed.
        threshold: the success whose first time is reported, a share above 0 and at most 1.
        console: where the headlines are shown; None shows nothing.

    Returns the HTML file. Raises ValueError on a threshold outside its range or two copies of a run, FileNotFoundError
    where a directory holds no finished run, NotWrittenError where the disk is full.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold={threshold}: a share of successes, above 0 and at most 1 (0.8 is 80 %).")
    runs, unfinished = load_runs(directories)
    found = comparisons(runs)
    style = styles(label for comparison in found for label in comparison.runs)
    slugs = [f"{number}_" for number in range(1, len(found) + 1)] if len(found) > 1 else [""]
    chapters = [
        *([overview_chapter(found)] if len(found) > 1 else []),
        *(
            comparison_chapter(one, style, title=one.title if slug else "", slug=slug, threshold=threshold)
            for one, slug in zip(found, slugs, strict=True)
        ),
        notes_chapter(),
    ]
    chapters[0] = replace(chapters[0], sections=[*left_out(unfinished), *chapters[0].sections])
    title = found[0].title if len(found) == 1 else f"{len(found)} comparisons"
    made_by = f"Made by hgpo-gym report (hgpo_gym {version('hgpo_gym')}) from {len(runs)} finished runs."
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        replace_earlier(out, chapters)
        write_figures(chapters, out / "figures")
        write_tables(chapters, out / "tables")
        write_markdown(title, chapters, made_by, out / "report.md")
        write_html(title, chapters, made_by, out / "report.html")
    if console is not None:
        show(title, chapters[:1] if len(found) > 1 else chapters, console, headlines=True)
    return out / "report.html"


__all__ = ["write_report"]
