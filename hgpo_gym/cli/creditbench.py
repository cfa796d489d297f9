"""`hgpo-gym creditbench`: scores of credit-assignment methods."""

import argparse
import csv
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hgpo_gym.creditbench.probes import probes
from hgpo_gym.creditbench.scores import MEASURES, Score, scorable, score_estimators, score_file
from hgpo_gym.plugins import load_plugins

HEADER = ("method", "score", "low", "high", *MEASURES)
"""The columns of the CSV: the mean cosine, its 95 % interval, and the means of the other measures."""
SHOWN = ("method", "score", "low", "high", "signs", "rank", "nonzero", "microseconds")
"""Those that the terminal has room for."""


def creditbench(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym creditbench`."""
    load_plugins(parsed.plugins)
    on = probes(parsed.seed)
    names = parsed.methods or ([] if parsed.csv else scorable())
    scores = score_estimators(names, on) + ([score_file(parsed.csv, on=on)] if parsed.csv else [])
    rows = [_row(each) for each in sorted(scores, key=lambda each: -each.value)]
    if parsed.out is not None:
        with parsed.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *rows])
    table = Table(box=SIMPLE_HEAD)
    for title in SHOWN:
        table.add_column(title, no_wrap=title == "method", justify="left" if title == "method" else "right")
    for row in rows:
        by_title = dict(zip(HEADER, row, strict=True))
        table.add_row(*(by_title[title] for title in SHOWN))
    Console().print(table)


def _row(score: Score) -> Sequence[str]:
    numbers = (score.value, *score.interval, *map(score.mean, MEASURES))
    return score.name, *(f"{number:.3f}" for number in numbers)
