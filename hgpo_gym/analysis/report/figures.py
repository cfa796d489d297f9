"""The pictures of a report: one panel each, as wide as a phone; on a desktop two fit side by side."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hgpo_gym.analysis.report.intervals import Estimate, bootstrap, interquartile_mean, typical
from hgpo_gym.analysis.report.load import COSTS, Comparison
from hgpo_gym.plain_text import for_terminal

SIZE = (5.0, 3.4)
"""Inches. The font is large for it, because a phone shows the picture at little more than half this size."""
FONT_SIZE = 11
LEGEND_ROW = 0.22
"""Inches of a row of the legend."""
MARGINS = {"left": 0.85, "right": 0.15, "bottom": 0.55, "top": 0.35}
"""Inches around the axes of a curve, without the legend's further rows. matplotlib would take a third of the time of a
picture to find them."""
TICKS = 5
"""Most intervals between the ticks of an axis of curves. Each tick takes a millisecond, and a phone has little room."""
LABEL_WIDTH = 20
"""Characters of a row's label before a line break."""
SMOOTHING = 5
"""Iterations that noisy curves of training are averaged over."""
GRID = 40
"""Points of a curve over environment steps, whose numbers differ between runs."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable with every common colour vision (Okabe & Ito, 2008)."""
MARKERS = "osD^vPX"
LINES = ("-", "--", ":")
"""Line styles for labels that share colour and marker."""

Styles = Mapping[str, Mapping[str, Any]]
"""Colour, marker and line of each label, the same in every picture of a report."""


def styles(labels: Iterable[str]) -> Styles:
    return {
        label: {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": LINES[number // len(COLOURS) % len(LINES)],
        }
        for number, label in enumerate(dict.fromkeys(labels))
    }


def learning_curve(comparison: Comparison, style: Styles) -> Figure:
    """Draw the success in the evaluations against iterations."""
    iterations = comparison.evaluated_iterations
    figure, axes = _panel("iteration", "success")
    for label, runs in comparison.runs.items():
        scores = np.array([[run.success_at(iteration) for run in runs] for iteration in iterations])
        _band(axes, iterations, scores, label, style)
    return _finished(figure, axes, share=True)


def learning_curve_over(comparison: Comparison, style: Styles, cost: str) -> Figure:
    """Draw the success in the evaluations against a training cost, interpolated linearly between evaluations."""
    figure, axes = _panel(COSTS[cost], "success")
    iterations = comparison.evaluated_iterations
    for label, runs in comparison.runs.items():
        costs = np.array([[run.cost_after(cost)[iteration] for iteration in iterations] for run in runs])
        # The shortest run limits the grid, so that no curve is extrapolated.
        grid = np.linspace(0, costs[:, -1].min(), GRID)
        scores = [
            np.interp(grid, run_costs, [run.success_at(iteration) for iteration in iterations])
            for run_costs, run in zip(costs, runs, strict=True)
        ]
        _band(axes, grid, np.array(scores).T, label, style, marker="")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    return _finished(figure, axes, share=True)


def training_curve(comparison: Comparison, style: Styles, metric: str, axis: str, *, share: bool = False) -> Figure:
    """Draw a metric of the training rollouts against iterations, averaged over the last few."""
    curves = {label: np.array([run.curve(metric) for run in runs]) for label, runs in comparison.runs.items()}
    return smoothed_curves(curves, style, axis, share=share)


def smoothed_curves(curves: Mapping[str, np.ndarray], style: Styles, axis: str, *, share: bool = False) -> Figure:
    """Draw the numbers of each label, float64[runs, iterations], averaged over the last few iterations."""
    figure, axes = _panel("iteration", axis)
    for label, label_curves in curves.items():
        smoothed = np.array([_smooth(curve) for curve in label_curves])
        _band(axes, range(1, smoothed.shape[1] + 1), smoothed.T, label, style, marker="")
    return _finished(figure, axes, share=share)


def update_curve(comparison: Comparison, style: Styles, metric: str, axis: str, *, share: bool = False) -> Figure:
    """Draw a metric of the update against iterations without smoothing, since a single value may break a run."""
    figure, axes = _panel("iteration", axis)
    for label, runs in comparison.runs.items():
        curves = np.array([run.curve(metric) for run in runs])
        _band(axes, range(1, curves.shape[1] + 1), curves.T, label, style)
    axes.set_xlim(0.5, curves.shape[1] + 0.5)
    return _finished(figure, axes, share=share)


def final_success(estimates: Mapping[str, Estimate], scores: Mapping[str, np.ndarray], style: Styles) -> Figure:
    """Draw every run's final success as a dot, and the interquartile mean with its interval above it."""
    figure, axes = _panel("success in the final evaluation", "", rows=len(estimates))
    for row, (label, estimate) in enumerate(estimates.items()):
        label_style = style[label]
        height = np.full(len(scores[label]), row + 0.2)
        axes.plot(scores[label], height, alpha=0.45, markersize=5, **{**label_style, "linestyle": ""})
        _interval(axes, row - 0.1, estimate, label_style["color"])
    all_scores = np.concatenate(list(scores.values()))
    axes.set_xlim(max(-0.01, all_scores.min() - 0.05), min(1.01, all_scores.max() + 0.05))
    axes.xaxis.set_major_formatter(_percent)
    return _rows(figure, axes, estimates)


def improvement_intervals(pairs: Mapping[str, Estimate]) -> Figure:
    """Draw the probability of improvement of each pair, around a line at one half."""
    figure, axes = _panel("probability", "", rows=len(pairs))
    axes.axvline(0.5, color="grey", linewidth=1)
    for row, estimate in enumerate(pairs.values()):
        _interval(axes, row, estimate, COLOURS[0])
    axes.set_xlim(-0.03, 1.03)
    return _rows(figure, axes, pairs)


def time_shares(seconds: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw the seconds of an iteration by part, a bar for each label."""
    parts = list(next(iter(seconds.values())))
    widths = {label: list(label_seconds.values()) for label, label_seconds in seconds.items()}
    return _stacked_bars(widths, parts, COLOURS, "seconds an iteration")


def size_shares(shares: Mapping[str, np.ndarray], sizes: Sequence[str]) -> Figure:
    """Draw the shares of steps by the size of their group, a bar for each label; the last size is no group."""
    darkening = [to_hex(colour) for colour in colormaps["viridis_r"](np.linspace(0, 1, len(sizes) - 1))]
    return _stacked_bars(shares, sizes, [*darkening, "#dddddd"], "share of steps")


def _stacked_bars(
    widths: Mapping[str, Sequence[float] | np.ndarray], parts: Sequence[str], colours: Sequence[str], axis: str
) -> Figure:
    figure, axes = _panel(axis, "", rows=len(widths))
    stacked = np.array(list(widths.values()))
    left = np.zeros(len(stacked))
    for part, colour, column in zip(parts, colours, stacked.T, strict=False):
        axes.barh(range(len(stacked)), column, left=left, color=colour, label=part, height=0.65)
        left += column
    _legend(figure, axes)
    return _rows(figure, axes, widths)


def _panel(horizontal: str, vertical: str, rows: int = 0) -> tuple[Figure, Axes]:
    """Return an empty panel; with `rows`, its height fits that many labelled rows."""
    # The font size applies when axes are created; it must not leak into other figures.
    with mpl.rc_context({"font.size": FONT_SIZE}):
        size = (SIZE[0], 1.1 + 0.55 * rows) if rows else SIZE
        figure = Figure(figsize=size, layout="constrained" if rows else None)
        axes = figure.subplots()
        axes.set(xlabel=horizontal, ylabel=vertical)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if not rows:
            axes.xaxis.set_major_locator(MaxNLocator(TICKS, integer=horizontal == "iteration"))
            axes.yaxis.set_major_locator(MaxNLocator(TICKS))
    return figure, axes


def _finished(figure: Figure, axes: Axes, *, share: bool) -> Figure:
    if share:
        axes.set_ylim(-0.03, 1.03 if axes.dataLim.ymax > 0.5 else ceil(10 * axes.dataLim.ymax + 0.1) / 10 + 0.03)
        axes.yaxis.set_major_formatter(_percent)
    _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    """Add the legend above the panel, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(4, 40 // (max(map(len, labels)) + 4)))
    # Integer division rounded up.
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * (rows - 1))
    if not (measured := figure.get_layout_engine()):
        _set_margins(figure, LEGEND_ROW * (rows - 1))
    place: Literal["outside upper center", "upper center"] = "outside upper center" if measured else "upper center"
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False, fontsize=FONT_SIZE)


def _set_margins(figure: Figure, above: float) -> None:
    """Place the axes of a curve, with room for the legend's further rows `above`, in inches."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=MARGINS["left"] / width,
        right=1 - MARGINS["right"] / width,
        bottom=MARGINS["bottom"] / height,
        top=1 - (MARGINS["top"] + above) / height,
    )


def _rows(figure: Figure, axes: Axes, labels: Iterable[str]) -> Figure:
    names = [textwrap.fill(_plain(label), LABEL_WIDTH) for label in labels]
    axes.set_yticks(range(len(names)), names, fontsize=FONT_SIZE)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    return figure


def _band(
    axes: Axes,
    horizontal: Sequence[float] | np.ndarray,
    scores: np.ndarray,
    label: str,
    style: Styles,
    marker: str | None = None,
) -> None:
    """Draw the interquartile mean of scores [points, runs] with its interval at every point; NaN scores are ignored."""
    label_style = dict(style[label])
    if marker is not None:
        label_style["marker"] = marker
    estimate = _typical_of_points(scores)
    axes.plot(horizontal, estimate.value, label=_plain(label), markersize=4, linewidth=1.6, **label_style)
    if estimate.low is not None:
        axes.fill_between(horizontal, estimate.low, estimate.high, color=label_style["color"], alpha=0.18, linewidth=0)


def _typical_of_points(scores: np.ndarray) -> Estimate:
    """Return the interquartile mean at every point, of the runs with a number there; NaN if no run has one."""
    if not np.isnan(scores).any():
        return bootstrap([scores], interquartile_mean)
    nothing = Estimate(np.nan, None, None, 0)
    points = [typical(values) if len(values := point[~np.isnan(point)]) else nothing for point in scores]
    ends = [[getattr(point, end) for point in points] for end in ("value", "low", "high")]
    value, low, high = (np.array(values, dtype=np.float64) for values in ends)  # None becomes NaN
    return Estimate(value, low, high, scores.shape[1])


def _interval(axes: Axes, row: float, estimate: Estimate, colour: str) -> None:
    if estimate.low is not None:
        axes.plot(
            [estimate.low, estimate.high], [row, row], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt"
        )
    axes.plot([estimate.value], [row], marker="|", markersize=16, markeredgewidth=2.5, color=colour)


def _plain(label: str) -> str:
    """Return a label for matplotlib, escaped.

    matplotlib reads text between dollars as mathematics, and hides labels that begin with a low line.
    """
    text = for_terminal(label).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return the mean of the last few values up to each."""
    return np.array([values[max(0, end - SMOOTHING) : end].mean() for end in range(1, len(values) + 1)])


def _percent(value: float, _position: object) -> str:
    return f"{value:.0%}"
