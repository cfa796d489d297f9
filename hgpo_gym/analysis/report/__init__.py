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
    html_page,
    markdown_page,
    replace_earlier,
    show,
    write_figures,
    write_tables,
)
from hgpo_gym.files import write_whole, writing


def write_report(
    directories: Sequence[Path], out: Path, *, threshold: float = 0.8, console: Console | None = None
) -> Path:
    """Compare the finished runs in `directories` and write the report into the folder `out`.

    `report.html` (self-contained), `report.md`, `tables/*.csv`, `figures/*.svg`. The same runs give
    the same files. Runs are compared if they differ only in the algorithm and the training seed; other runs get their
    own chapter.

    Args:
        directories: runs, or folders of runs at any depth.
        out: the folder; created if missing. A report in it is replaced: files that the new one lacks are removed.
        threshold: the report shows when this success is first reached; a share above 0 and at most 1.
        console: the console for the headlines; None prints nothing.

    Returns the HTML file. Raises ValueError on a threshold outside its range or two copies of a run, FileNotFoundError
    if a directory holds no finished run, NotWrittenError if the disk is full.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold={threshold}: a share of successes, above 0 and at most 1 (0.8 is 80 %).")
    runs, unfinished = load_runs(directories)
    all_comparisons = comparisons(runs)
    style = styles(label for comparison in all_comparisons for label in comparison.runs)
    slugs = [f"{number}_" for number in range(1, len(all_comparisons) + 1)] if len(all_comparisons) > 1 else [""]
    chapters = [
        *([overview_chapter(all_comparisons)] if len(all_comparisons) > 1 else []),
        *(
            comparison_chapter(item, style, title=item.title if slug else "", slug=slug, threshold=threshold)
            for item, slug in zip(all_comparisons, slugs, strict=True)
        ),
        notes_chapter(),
    ]
    chapters[0] = replace(chapters[0], sections=[*left_out(unfinished), *chapters[0].sections])
    title = all_comparisons[0].title if len(all_comparisons) == 1 else f"{len(all_comparisons)} comparisons"
    made_by = f"Made by hgpo-gym report (hgpo_gym {version('hgpo_gym')}) from {len(runs)} finished runs."
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        replace_earlier(out, chapters)
        write_figures(chapters, out / "figures")
        write_tables(chapters, out / "tables")
        write_whole(out / "report.md", markdown_page(title, chapters, made_by))
        write_whole(out / "report.html", html_page(title, chapters, made_by))
    if console is not None:
        show(title, chapters[:1] if len(all_comparisons) > 1 else chapters, console, headlines=True)
    return out / "report.html"


__all__ = ["write_report"]
