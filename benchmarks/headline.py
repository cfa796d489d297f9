"""The headline comparison: plays it, keeps a line a run, and writes README's table of it.

    python -m benchmarks.headline play runs/headline jobs=2     # hours of a core; goes on where it stopped
    python -m benchmarks.headline collect runs/headline         # the CSV of the runs that have ended
    python -m benchmarks.headline readme                        # README's rows; the site makes its table and heat map

Methods and environments are those of `league=headline`. Further settings are those of `hgpo-gym league`.
"""

import argparse
import csv
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.league_runs import balanced, read, records, write_lines
from docs_site.headline import SOURCE, rows
from docs_site.links import ROOT
from hgpo_gym.analysis.report.load import Comparison

SEEDS = {"alfworld,alfworld_warm": 3, "secret_word,webshop,webshop_warm": 5, "halls,chance,plates": 10}
"""How many training seeds the environments have, the fewest first."""
METHODS, LEAST_SEEDS = 6, 3
"""Of an environment that the CSV takes in."""
PROTOCOL = (
    "Every iteration has equally many optimiser steps for all methods: one for 8 episodes. Episode terms take their",
    "statistics over trajectories.",
)
README_TABLE = re.compile(r"(?<=<!-- python -m benchmarks\.headline readme -->\n\n)(\|.*\n)+")


def play(out: Path, settings: Sequence[str], seeds: int | None) -> None:
    """Play what is missing, a seed in all environments before the next one; with `seeds`, at most so many."""
    for number, usual in enumerate(SEEDS.values()):
        names = ",".join(list(SEEDS)[number:])
        chosen = [f"only=[{names}]", f"seeds={min(usual, seeds or usual)}", f"out={out}"]
        command = [sys.executable, "-m", "hgpo_gym", "league", "league=headline", *chosen, *settings]
        subprocess.run(command, check=True)


def collect(out: Path, to: Path) -> None:
    """Write the CSV: the runs of `out` by seeds that all methods have, in environments with at least `LEAST_SEEDS`; of
    other environments the lines that the CSV has had."""
    lines = [line for comparison in read([out]) for line in _complete(comparison)]
    collected = {line[0] for line in lines}
    with to.open(encoding="utf-8", newline="") as file:
        _, *earlier = csv.reader(line for line in file if not line.startswith("#"))
    lines += [line for line in earlier if line[0] not in collected]
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=out, capture_output=True, text=True, check=True
    )
    write_lines(to, lines, (*PROTOCOL, f"Code: commit {commit.stdout.strip()}."))


def _complete(comparison: Comparison) -> list[list[str]]:
    """Return the lines of an environment, none if it has too few seeds."""
    seeds = [{run.seed for run in runs} for runs in comparison.runs.values()]
    enough = len(seeds) == METHODS and len(set.intersection(*seeds)) >= LEAST_SEEDS
    return records(balanced(comparison)) if enough else []


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the comparison, or write README's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    player = commands.add_parser("play", help="play what is missing and write the CSV")
    player.add_argument("out", type=Path, help="the folder of the runs")
    player.add_argument("--seeds", type=int, help="at most so many")
    collector = commands.add_parser("collect", help="write the CSV, with the seeds that all methods have")
    collector.add_argument("out", type=Path, help="the folder of the runs")
    for command in (player, collector):
        command.add_argument("--to", type=Path, default=SOURCE, help="the CSV")
    commands.add_parser("readme", help="write README's table")
    parsed, settings = parser.parse_known_args(arguments)
    if parsed.command == "play":
        play(parsed.out, settings, parsed.seeds)
    if parsed.command in ("play", "collect"):
        collect(parsed.out, parsed.to)
    else:
        page = ROOT / "README.md"
        page.write_text(
            README_TABLE.sub(lambda _: rows("docs/methods"), page.read_text(encoding="utf-8")), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
