"""A line a run of a league as CSV, and how every algorithm differs from one of them at the same seed.

    hgpo-gym league seeds=10 trainer.iterations=12 out=runs/league
    python -m benchmarks.league_runs runs/league --less hgpo --to benchmarks/results/league.csv

Runs that have come to their end count, and of each environment the seeds that all its algorithms have. Success in the
rollouts over all iterations, and in the last evaluation: means, and mean differences in points, with 95 % bootstrap
intervals over seeds.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hgpo_gym.analysis.report.intervals import Estimate, mean
from hgpo_gym.analysis.report.load import Comparison, comparisons, load_runs
from hgpo_gym.analysis.report.outcome import SCORES
from hgpo_gym.suggest import unknown_name

COLUMNS = ("environment", "algorithm", "seed", "iterations", "steps", "seconds", "before", "final", "while_training")


def balanced(comparison: Comparison) -> Comparison:
    """With the seeds alone that all algorithms have."""
    seeds = set.intersection(*({run.seed for run in runs} for runs in comparison.runs.values()))
    runs = {label: tuple(run for run in runs if run.seed in seeds) for label, runs in comparison.runs.items()}
    return replace(comparison, runs=runs)


def records(comparison: Comparison) -> list[tuple[str | int | float, ...]]:
    """A row of `COLUMNS` for each run."""
    return [
        (
            comparison.settings["env_name"],
            label,
            run.seed,
            len(run.metrics),
            int(run.curve("steps").sum()),
            round(sum(run.seconds.values()), 1),
            round(run.evaluations[0]["success"], 4),
            round(run.final_success, 4),
            round(run.success_while_training, 4),
        )
        for label, runs in comparison.runs.items()
        for run in runs
    ]


def lines(comparison: Comparison, less: str) -> list[str]:
    """A line an algorithm and kind of success, the best first.

    Raises:
        ValueError: it has no algorithm of the label `less`.
    """
    if less not in comparison.runs:
        raise ValueError(unknown_name("algorithm", less, comparison.runs))
    told = []
    for name, score in SCORES.items():
        for label in sorted(comparison.runs, key=lambda label: -comparison.scores(label, score).mean()):
            own = mean(comparison.scores(label, score))
            difference = mean(comparison.differences(label, less, score))
            told.append(f"{label}, {name}: {_in_percent(own)}; less {less} {_in_percent(difference)}")
    return told


def _in_percent(estimate: Estimate) -> str:
    interval = "" if estimate.low is None else f" ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
    return f"{100 * estimate.value:.1f}{interval}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the lines of every environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the league")
    parser.add_argument("--less", default="grpo", help="the algorithm that others are compared with")
    parser.add_argument("--to", type=Path, help="the CSV file to write")
    parsed = parser.parse_args(arguments)
    found = [balanced(comparison) for comparison in comparisons(load_runs([parsed.folder])[0])]
    for comparison in found:
        seeds = len(next(iter(comparison.runs.values())))
        print("\n".join([f"{comparison.settings['env_name']}, {seeds} seeds", *lines(comparison, parsed.less)]))
    if parsed.to:
        with parsed.to.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *(row for comparison in found for row in records(comparison))])


if __name__ == "__main__":
    main()
