"""Success while training of the runs of one environment, iteration by iteration: kept as CSV, drawn from it.

    python -m benchmarks.league_curves runs/headline/alfworld --to benchmarks/results/league_alfworld_curves.csv
    python -m benchmarks.league_curves benchmarks/results/league_alfworld_curves.csv --picture curves.png

What is given may be folders of runs, CSV files that this has written, or both, which are joined: so a league goes on
where the runs that began it are gone. A line of the CSV is a run: algorithm, seed, and its success in the rollouts of
each iteration. The picture has the interquartile means over seeds with their 95 % intervals, averaged over five
iterations.
"""

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.league_runs import read
from hgpo_gym.analysis.report import figures

Curves = Mapping[tuple[str, int], Sequence[float]]
"""Success of each iteration, by algorithm and seed; the runs of an algorithm stand together."""


def of_folder(path: Path) -> Curves:
    """Of runs that have come to their end.

    Raises:
        FileNotFoundError: there is none.
        ValueError: they differ in more than algorithm and seed.
    """
    comparison, *others = read([path])
    if others:
        titles = "; ".join(one.title for one in (comparison, *others))
        raise ValueError(f"{path} holds runs of several environments or settings ({titles}): name the folder of one.")
    return {
        (label, run.seed): [round(float(success), 4) for success in run.curve("success")]
        for label, runs in comparison.runs.items()
        for run in runs
    }


def of_file(path: Path) -> Curves:
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        next(lines)
        return {(label, int(seed)): [float(success) for success in own] for label, seed, *own in lines}


def joined(parts: Iterable[Curves]) -> Curves:
    """All runs, by algorithm in the order of their first, then by seed.

    Raises:
        ValueError: a run is there twice with other numbers, or runs have different numbers of iterations.
    """
    runs: dict[tuple[str, int], Sequence[float]] = {}
    for part in parts:
        for (label, seed), curve in part.items():
            if curve != runs.setdefault((label, seed), curve):
                raise ValueError(f"{label}, seed {seed}, is there twice, with different numbers: leave one out.")
    lengths = sorted({len(curve) for curve in runs.values()})
    if len(lengths) != 1:
        raise ValueError(f"Runs of one number of iterations are needed; found {lengths}.")
    order = list(dict.fromkeys(label for label, _ in runs))
    return dict(sorted(runs.items(), key=lambda run: (order.index(run[0][0]), run[0][1])))


def write(runs: Curves, path: Path) -> None:
    iterations = range(1, 1 + len(next(iter(runs.values()))))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("algorithm", "seed", *iterations), *((*run, *own) for run, own in runs.items())])


def draw(runs: Curves, path: Path) -> None:
    curves = {
        label: np.array([curve for _, curve in own]) for label, own in groupby(runs.items(), key=lambda run: run[0][0])
    }
    figures.smoothed_curves(curves, figures.styles(curves), "success", share=True).savefig(path, dpi=130)


def main(arguments: Sequence[str] | None = None) -> None:
    """Joins what is given; writes the CSV, draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of runs, CSV files")
    parser.add_argument("--to", type=Path, help="the CSV file to write")
    parser.add_argument("--picture", type=Path, help="the PNG file to draw")
    parsed = parser.parse_args(arguments)
    runs = joined(of_folder(path) if path.is_dir() else of_file(path) for path in parsed.sources)
    if parsed.to:
        write(runs, parsed.to)
    if parsed.picture:
        draw(runs, parsed.picture)
    for label, own in groupby(runs, key=lambda run: run[0]):
        print(f"{label}: seeds {', '.join(str(seed) for _, seed in own)}")


if __name__ == "__main__":
    main()
