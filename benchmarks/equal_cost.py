"""Success at equal cost: how well runs do on average until all of them have played as much.

    hgpo-gym compare evaluation.every=1 'algos=[grpo,{name: grpo, sampler: dynamic}]' seeds=10 out=runs/dynamic
    python -m benchmarks.equal_cost runs/dynamic --cost episodes

A line an algorithm: the mean of the evaluations' success from the first episode (step, token) to the least that any run
has played in all, between evaluations in a straight line; and the same less that of the first algorithm, seed by seed.
Everything that was played counts. Brackets are 95 % bootstrap intervals over seeds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hgpo_gym.analysis.report.intervals import Estimate, mean
from hgpo_gym.analysis.report.load import COSTS, Comparison, Run, comparisons, load_runs
from hgpo_gym.suggest import unknown_name


def mean_success(run: Run, cost: str, budget: float) -> float:
    """Mean over what was played up to the budget."""
    played = run.played_after(cost)
    at = np.array([played[evaluation["iteration"]] for evaluation in run.evaluations])
    success = np.array([evaluation["success"] for evaluation in run.evaluations])
    places = np.append(at[at < budget], budget)
    return float(np.trapezoid(np.interp(places, at, success), places) / budget)


def lines(comparison: Comparison, cost: str, baseline: str | None = None) -> list[str]:
    """What is printed of a comparison.

    Raises:
        ValueError: it has no algorithm of the baseline's label.
    """
    if baseline is not None and baseline not in comparison.runs:
        raise ValueError(unknown_name("algorithm", baseline, comparison.runs))
    budget = min(run.curve(cost).sum() for run in comparison.all_runs)
    first = baseline or next(iter(comparison.runs))
    told = [f"{comparison.title}: up to {budget:,.0f} {COSTS[cost]}"]
    for label, runs in comparison.runs.items():
        own = mean([mean_success(run, cost, budget) for run in runs])
        told.append(f"{label}: {in_percent(own)}")
        if label != first:
            less = mean(comparison.differences(label, first, lambda run: mean_success(run, cost, budget)))
            told[-1] += f"; less {first}, points: {in_percent(less)}"
    return told


def in_percent(estimate: Estimate) -> str:
    """The value, and its interval where there is one."""
    interval = "" if estimate.low is None else f" ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
    return f"{100 * estimate.value:.1f}{interval}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the lines of every comparison in the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with a folder for each run")
    parser.add_argument("--cost", choices=list(COSTS), default="episodes")
    parser.add_argument("--less", help="the label of the algorithm that others are compared with; the first by default")
    parsed = parser.parse_args(arguments)
    runs, _ = load_runs([parsed.folder])
    for comparison in comparisons(runs):
        print("\n".join(lines(comparison, parsed.cost, parsed.less)))


if __name__ == "__main__":
    main()
