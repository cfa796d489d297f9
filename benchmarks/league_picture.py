"""A picture of a league: every algorithm less one of them, environment by environment, from the lines a run that
`benchmarks.league_runs` writes.

    python -m benchmarks.league_picture docs/images/league_all.png --less grpo benchmarks/results/league_headline.csv

Mean differences at the same seed, in points, with 95 % bootstrap intervals over seeds: while training on the left, in
the end on the right. Algorithms that are not in every environment are left out, as by `benchmarks.league_page`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.league_page import COLUMNS, League
from hgpo_gym.analysis.report.figures import styles
from hgpo_gym.analysis.report.intervals import mean
from hgpo_gym.suggest import unknown_name

WIDTH, ROW = 9.0, 0.62
"""Inches: of the picture, of an environment."""
SPREAD = 0.64
"""Of the room between two environments, how much their algorithms take."""


def draw(league: League, less: str) -> Figure:
    """A panel a score, a row an environment."""
    names = [name for name in league.algorithms if name != less]
    figure = Figure(figsize=(WIDTH, 1.3 + ROW * len(league.environments)), layout="constrained")
    panels = figure.subplots(1, len(COLUMNS), sharey=True)
    for axes, score in zip(panels, COLUMNS, strict=True):
        _panel(axes, league, names, score, less)
    panels[0].set_yticks(range(len(league.environments)), league.environments)
    panels[0].invert_yaxis()
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _panel(axes: Axes, league: League, names: Sequence[str], score: str, less: str) -> None:
    axes.axvline(0, color="grey", linewidth=1)
    own = styles(names)
    found = league.differences(score, less)
    for name, offset in zip(names, np.linspace(-SPREAD / 2, SPREAD / 2, len(names)), strict=True):
        estimates = [mean(differences) for differences in found[name]]
        values = np.array([100 * estimate.value for estimate in estimates])
        reach = np.array(
            [
                [0 if bound is None else abs(100 * bound - value) for bound in (estimate.low, estimate.high)]
                for estimate, value in zip(estimates, values, strict=True)
            ]
        )
        rows = np.arange(len(values)) + offset
        axes.errorbar(values, rows, xerr=reach.T, label=name, markersize=5, **{**own[name], "linestyle": ""})
    axes.set_xlabel(f"{score}: points less {less}")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", help="CSV files of benchmarks.league_runs")
    parser.add_argument("--less", default="grpo", help="the algorithm that the others are compared with")
    parser.add_argument("--only", nargs="+", default=[], metavar="ENVIRONMENT", help="these, in this order")
    parsed = parser.parse_args(arguments)
    league = League(parsed.runs, parsed.only)
    if parsed.less not in league.algorithms:
        raise ValueError(unknown_name("algorithm", parsed.less, league.algorithms))
    draw(league, parsed.less).savefig(parsed.picture, dpi=130)


if __name__ == "__main__":
    main()
