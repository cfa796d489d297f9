"""Success at equal cost: the mean success of evaluations until every run has played as much as the shortest one.

    hgpo-gym compare evaluation.every=1 'algos=[grpo,{name: grpo, sampler: dynamic}]' seeds=10 out=runs/dynamic
    python -m benchmarks.equal_cost runs/dynamic --cost iterations episodes

Differences are to the first algorithm at the same seed, with 95 % t intervals; an asterisk says p < 0.05.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.league_runs import in_percent, in_points
from hgpo_gym.analysis.report.intervals import mean
from hgpo_gym.analysis.report.load import COSTS, Comparison, FinishedRun, comparisons, load_runs
from hgpo_gym.suggest import unknown_name

ITERATIONS = "iterations"
COLUMNS = ("environment", "algorithm", "seed", "cost", "until", "played", "success")


def played_after(run: FinishedRun, cost: str) -> dict[int, float]:
    """The cost of a run after an iteration."""
    if cost == ITERATIONS:
        return {iteration: float(iteration) for iteration in range(len(run.metrics) + 1)}
    return run.cost_after(cost)


def played(run: FinishedRun, cost: str) -> float:
    """In all."""
    return max(played_after(run, cost).values())


def least(comparison: Comparison, cost: str) -> float:
    """That any run has played."""
    return min(played(run, cost) for run in comparison.all_runs)


def mean_success(run: FinishedRun, cost: str, budget: float) -> float:
    """Mean over what was played up to the budget."""
    after = played_after(run, cost)
    at = np.array([after[evaluation["iteration"]] for evaluation in run.evaluations])
    success = np.array([evaluation["success"] for evaluation in run.evaluations])
    places = np.append(at[at < budget], budget)
    return float(np.trapezoid(np.interp(places, at, success), places) / budget)


def lines(comparison: Comparison, cost: str, baseline: str | None = None) -> list[str]:
    """Return the printed lines of a comparison.

    Raises:
        ValueError: it has no algorithm of the baseline's label.
    """
    if baseline is not None and baseline not in comparison.runs:
        raise ValueError(unknown_name("algorithm", baseline, comparison.runs))
    budget = least(comparison, cost)
    first = baseline or next(iter(comparison.runs))
    told = [f"{comparison.title}: up to {budget:,.0f} {COSTS.get(cost, cost)}"]
    differences = in_points(
        [
            comparison.differences(label, first, lambda run: mean_success(run, cost, budget)) if label != first else ()
            for label in comparison.runs
        ]
    )
    for (label, runs), beside in zip(comparison.runs.items(), differences, strict=True):
        own = mean([mean_success(run, cost, budget) for run in runs])
        told.append(f"{label}: {in_percent(own)}" + (f"; minus {first}, points: {beside}" if beside else ""))
    return told


def records(comparison: Comparison, cost: str) -> Iterator[tuple[str | int | float, ...]]:
    """A row of `COLUMNS` for each run."""
    budget = least(comparison, cost)
    for label, runs in comparison.runs.items():
        for run in runs:
            success = round(mean_success(run, cost, budget), 4)
            yield comparison.settings["env_name"], label, run.seed, cost, int(budget), int(played(run, cost)), success


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the lines of every comparison in the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="with a folder for each run")
    parser.add_argument("--cost", choices=[ITERATIONS, *COSTS], nargs="+", default=["episodes"])
    parser.add_argument(
        "--baseline", help="the label of the algorithm that others are compared with; the first by default"
    )
    parser.add_argument("--to", type=Path, help="the CSV file to write")
    parsed = parser.parse_args(arguments)
    found = comparisons(load_runs(parsed.folders)[0])
    for comparison in found:
        for cost in parsed.cost:
            print("\n".join(lines(comparison, cost, parsed.baseline)))
    if parsed.to:
        with parsed.to.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(COLUMNS)
            rows.writerows(row for comparison in found for cost in parsed.cost for row in records(comparison, cost))


if __name__ == "__main__":
    main()
