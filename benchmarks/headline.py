"""The headline comparison: plays it, keeps a line a run, and writes README's table of it.

    python -m benchmarks.headline play runs/headline jobs=2     # about seven hours of a core; goes on where it stopped
    python -m benchmarks.headline readme                        # README's rows; the site makes its table and heat map

Methods and environments are those of `league=headline`. Further settings are those of `hgpo-gym league`.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.league_runs import read, records, write_lines
from docs_site.headline import SOURCE, rows
from docs_site.links import ROOT

SEEDS = {"halls,chance,plates": 50, "alfworld,alfworld_warm": 10, "webshop,webshop_warm": 20, "secret_word": 5}
"""How many training seeds the environments have."""
PROTOCOL = (
    "Zero-advantage samples are masked (`trainer.zero_advantage=mask`) and keep their places in mini-batches of fixed",
    "size; a mini-batch that has no others makes no step. Episode terms take their statistics over trajectories.",
)
README_TABLE = re.compile(r"(?<=<!-- python -m benchmarks\.headline readme -->\n\n)(\|.*\n)+")


def play(out: Path, settings: Sequence[str], seeds: int | None) -> None:
    """Play what is missing, then write the CSV; with `seeds`, at most so many."""
    for names, usual in SEEDS.items():
        own = [f"only=[{names}]", f"seeds={min(usual, seeds or usual)}", f"out={out}"]
        command = [sys.executable, "-m", "hgpo_gym", "league", "league=headline", *own, *settings]
        subprocess.run(command, check=True)


def collected(out: Path) -> list[list[str]]:
    """Return a line for each run in a folder."""
    return [line for comparison in read([out]) for line in records(comparison)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the comparison, or write README's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    player = commands.add_parser("play", help="play what is missing and write the CSV")
    player.add_argument("out", type=Path, help="the folder of the runs")
    player.add_argument("--seeds", type=int, help="at most so many")
    player.add_argument("--to", type=Path, default=SOURCE, help="the CSV")
    commands.add_parser("readme", help="write README's table")
    parsed, settings = parser.parse_known_args(arguments)
    if parsed.command == "play":
        play(parsed.out, settings, parsed.seeds)
        write_lines(parsed.to, collected(parsed.out), PROTOCOL)
    else:
        page = ROOT / "README.md"
        page.write_text(
            README_TABLE.sub(lambda _: rows("docs/methods"), page.read_text(encoding="utf-8")), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
