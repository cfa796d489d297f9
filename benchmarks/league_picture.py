"""A picture of a league: every algorithm less one of them, environment by environment, from the lines a run that
`benchmarks.league_runs` writes.

    python -m benchmarks.league_picture docs/images/league_all.png --less grpo benchmarks/results/league_headline.csv

Mean differences at the same seed, in points: while training on the left, in the end on the right. Up to seven
algorithms are dots with 95 % t intervals over seeds. More, which colours and markers do not tell apart, are the
rows of a map, the best mean rank first, bold where `benchmarks.league_page` has an asterisk, a dash without a seed in
common. Algorithms that are not in every environment are left out, as there.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.league_page import ALIKE, COLUMNS, League, ranks_in
from benchmarks.league_runs import significant
from hgpo_gym.analysis.report.figures import COLOURS, styles
from hgpo_gym.analysis.report.intervals import mean
from hgpo_gym.suggest import unknown_name

WIDTH, ROW = 9.0, 0.62
"""Inches: of the picture, of an environment."""
CELL = (0.62, 0.3)
"""Inches: of an algorithm in an environment, in a map."""
LIMIT = 10.0
"""Points from which on a map's colours are the same."""
SPREAD = 0.64
"""Of the room between two environments, how much their algorithms take."""


def draw(league: League, less: str) -> Figure:
    """A panel a score."""
    names = [name for name in league.algorithms if name != less]
    return _dots(league, names, less) if len(names) <= len(COLOURS) else _map(league, less)


def _dots(league: League, names: Sequence[str], less: str) -> Figure:
    """A row an environment."""
    figure = Figure(figsize=(WIDTH, 1.3 + ROW * len(league.environments)), layout="constrained")
    panels = figure.subplots(1, len(COLUMNS), sharey=True)
    for axes, score in zip(panels, COLUMNS, strict=True):
        _panel(axes, league, names, score, less)
    panels[0].set_yticks(range(len(league.environments)), league.environments)
    panels[0].invert_yaxis()
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _map(league: League, less: str) -> Figure:
    """A row an algorithm, a column an environment; where most have the same there is nothing to show."""
    numbers = {score: found for score in COLUMNS if (found := league.telling(score))}
    if not numbers:
        raise ValueError(ALIKE.strip())
    places = {score: list(found) for score, found in numbers.items()}
    ranks = ranks_in(next(iter(numbers.values()))).value
    names = [league.algorithms[row] for row in np.argsort(ranks, kind="stable") if league.algorithms[row] != less]
    widths = list(map(len, places.values()))
    figure = Figure(figsize=(2.5 + CELL[0] * sum(widths), 1.8 + CELL[1] * len(names)), layout="constrained")
    panels = figure.subplots(1, len(places), sharey=True, width_ratios=widths, squeeze=False)[0]
    for axes, (score, environments) in zip(panels, places.items(), strict=True):
        found = league.differences(score, less)
        cells = [found[name][one] for name in names for one in environments]
        means = [100 * cell.mean() if len(cell) else np.nan for cell in cells]
        points = np.array(means).reshape(len(names), len(environments))
        axes.imshow(points, cmap="RdBu", vmin=-LIMIT, vmax=LIMIT, aspect="auto")
        for ((row, column), value), sure in zip(np.ndenumerate(points), significant(cells), strict=True):
            colour = "white" if abs(value) > 0.7 * LIMIT else "black"
            weight = "bold" if sure else "normal"
            told = "-" if np.isnan(value) else f"{value:+.1f}"
            axes.text(column, row, told, ha="center", va="center", color=colour, weight=weight, size=8)
        axes.set_title(f"{score}: points less {less}", fontsize=9)
        axes.set_xticks(range(len(environments)), environments, rotation=35, ha="right", fontsize=9)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    panels[0].set_yticks(range(len(names)), names, fontsize=9)
    return figure


def _panel(axes: Axes, league: League, names: Sequence[str], score: str, less: str) -> None:
    axes.axvline(0, color="grey", linewidth=1)
    own = styles(names)
    found = league.differences(score, less)
    for name, offset in zip(names, np.linspace(-SPREAD / 2, SPREAD / 2, len(names)), strict=True):
        estimates = [mean(differences) for differences in found[name].values()]
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
