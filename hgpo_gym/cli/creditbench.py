"""`hgpo-gym creditbench`: scores of credit-assignment methods."""

import argparse
import csv
import dataclasses
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hgpo_gym.creditbench.data import DEFAULT_KEY, digest, digests, read
from hgpo_gym.creditbench.probes import probes, probes_file
from hgpo_gym.creditbench.scores import MEASURES, Score, scorable, score_estimators, score_file
from hgpo_gym.plugins import load_plugins

HEADER = ("method", "key", "score", "low", "high", *MEASURES)
"""The columns of the CSV: the mean cosine, its 95 % interval, and the means of the other measures. The cosine of each
environment follows."""
SHOWN = {"signs": "signs", "rank": "rank", "microseconds": "µs"}
"""The measures that the terminal has room for, and their titles."""


def creditbench(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym creditbench`."""
    if parsed.methods == ["make"]:
        make(parsed.seed)
        return
    load_plugins(parsed.plugins)
    on = probes(parsed.seed)
    names = parsed.methods or ([] if parsed.csv else scorable())
    scores = [
        (key, score)
        for key in parsed.key
        for score in score_estimators(names, [dataclasses.replace(probe, key=key) for probe in on])
    ]
    if parsed.csv:
        scores.append(("", score_file(parsed.csv, on=on)))
    rows = [_row(key, score) for key, score in sorted(scores, key=lambda pair: -pair[1].value)]
    if parsed.out is not None:
        with parsed.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([(*HEADER, *scores[0][1].by_environment()), *rows])
    table = Table(box=SIMPLE_HEAD)
    table.add_column("method", overflow="fold")
    for title in ("score", "95 %", *SHOWN.values()):
        table.add_column(title, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(*_shown(dict(zip(HEADER, row, strict=False))))
    if scores:
        table.caption = f"A second draw of the truth would score {scores[0][1].mean('ceiling'):.3f}."
    Console().print(table)


def _shown(row: Mapping[str, str]) -> Sequence[str]:
    """Return the cells of a row in the terminal."""
    method = row["method"] if row["key"] in ("", DEFAULT_KEY) else f"{row['method']} key={row['key']}"
    return method, row["score"], f"{row['low']} to {row['high']}", *(row[measure] for measure in SHOWN)


def make(seed: int) -> None:
    """Make the probes of a seed, unless they are in the cache, and print their file, size and digest."""
    path = probes_file(seed)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, digest {digest(digests(read(path)))}")


def _row(key: str, score: Score) -> Sequence[str]:
    values = (score.value, *score.interval, *map(score.mean, MEASURES), *score.by_environment().values())
    return score.name, key, *(f"{number:.3f}" for number in values)
