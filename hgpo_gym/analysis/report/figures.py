"""The pictures of a report: one panel each, so that it fills a phone's width and stands beside another on a desk."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

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
"""Inches. The letters are large for it: a phone shows the picture at little more than half its size on paper."""
FONT_SIZE = 11
LEGEND_ROW = 0.22
"""Inches a row of the legend."""
LABEL_WIDTH = 20
"""Letters before the label of a row is broken."""
SMOOTHING = 5
"""Iterations that noisy curves of training are averaged over."""
GRID = 40
"""Points of a curve over environment steps, which no two runs count alike."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart with every common colour vision (Okabe & Ito, 2008)."""
MARKERS = "osD^vPX"
LINES = ("-", "--", ":")
"""Of the labels that have the same colour and marker."""

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
    """Success in the evaluations, against iterations."""
    iterations = comparison.evaluated_iterations
    figure, axes = _panel("iteration", "success")
    for label, runs in comparison.runs.items():
        scores = np.array([[run.success_at(iteration) for run in runs] for iteration in iterations])
        _band(axes, iterations, scores, label, style)
    return _finished(figure, axes, share=True)


def learning_curve_over(comparison: Comparison, style: Styles, cost: str) -> Figure:
    """Success in the evaluations, against what was played in training; between evaluations a straight line."""
    figure, axes = _panel(COSTS[cost], "success")
    iterations = comparison.evaluated_iterations
    for label, runs in comparison.runs.items():
        played = np.array([[run.played_after(cost)[iteration] for iteration in iterations] for run in runs])
        grid = np.linspace(0, played[:, -1].min(), GRID)
        scores = [
            np.interp(grid, own, [run.success_at(iteration) for iteration in iterations])
            for own, run in zip(played, runs, strict=True)
        ]
        _band(axes, grid, np.array(scores).T, label, style, marker="")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    return _finished(figure, axes, share=True)


def training_curve(comparison: Comparison, style: Styles, metric: str, axis: str, *, share: bool = False) -> Figure:
    """A metric of the training rollouts against iterations, averaged over the last few."""
    curves = {label: np.array([run.curve(metric) for run in runs]) for label, runs in comparison.runs.items()}
    return smoothed_curves(curves, style, axis, share=share)


def smoothed_curves(curves: Mapping[str, np.ndarray], style: Styles, axis: str, *, share: bool = False) -> Figure:
    """Numbers of each label, float64[runs, iterations], averaged over the last few iterations."""
    figure, axes = _panel("iteration", axis)
    for label, own in curves.items():
        smoothed = np.array([_smooth(curve) for curve in own])
        _band(axes, range(1, smoothed.shape[1] + 1), smoothed.T, label, style, marker="")
    return _finished(figure, axes, share=share)


def update_curve(comparison: Comparison, style: Styles, metric: str, axis: str, *, share: bool = False) -> Figure:
    """A metric of the update against iterations, as it is: what breaks a run may be a single value."""
    figure, axes = _panel("iteration", axis)
    for label, runs in comparison.runs.items():
        curves = np.array([run.curve(metric) for run in runs])
        _band(axes, range(1, curves.shape[1] + 1), curves.T, label, style)
    axes.set_xlim(0.5, curves.shape[1] + 0.5)
    return _finished(figure, axes, share=share)


def final_success(estimates: Mapping[str, Estimate], scores: Mapping[str, np.ndarray], style: Styles) -> Figure:
    """Every run's final success as a dot, the interquartile mean with its interval above it."""
    figure, axes = _panel("success in the final evaluation", "", rows=len(estimates))
    for row, (label, estimate) in enumerate(estimates.items()):
        own = style[label]
        height = np.full(len(scores[label]), row + 0.2)
        axes.plot(scores[label], height, alpha=0.45, markersize=5, **{**own, "linestyle": ""})
        _interval(axes, row - 0.1, estimate, own["color"])
    everything = np.concatenate(list(scores.values()))
    axes.set_xlim(max(-0.01, everything.min() - 0.05), min(1.01, everything.max() + 0.05))
    axes.xaxis.set_major_formatter(_percent)
    return _rows(figure, axes, estimates)


def improvement_intervals(pairs: Mapping[str, Estimate]) -> Figure:
    """The probability of improvement of each pair, around the line where neither is better."""
    figure, axes = _panel("probability", "", rows=len(pairs))
    axes.axvline(0.5, color="grey", linewidth=1)
    for row, estimate in enumerate(pairs.values()):
        _interval(axes, row, estimate, COLOURS[0])
    axes.set_xlim(-0.03, 1.03)
    return _rows(figure, axes, pairs)


def time_shares(seconds: Mapping[str, Mapping[str, float]]) -> Figure:
    """Seconds of an iteration by what they went to, a bar a label."""
    parts = list(next(iter(seconds.values())))
    widths = {label: list(own.values()) for label, own in seconds.items()}
    return _stacked_bars(widths, parts, COLOURS, "seconds an iteration")


def size_shares(shares: Mapping[str, np.ndarray], sizes: Sequence[str]) -> Figure:
    """Shares of steps by the size of their group, a bar a label; the last size is none."""
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
    """An empty panel; with `rows`, as high as that many labelled rows need."""
    with mpl.rc_context({"font.size": FONT_SIZE}):
        figure = Figure(figsize=(SIZE[0], 1.1 + 0.55 * rows) if rows else SIZE, layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel=horizontal, ylabel=vertical)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if horizontal == "iteration":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def _finished(figure: Figure, axes: Axes, *, share: bool) -> Figure:
    if share:
        axes.set_ylim(-0.03, 1.03 if axes.dataLim.ymax > 0.5 else ceil(10 * axes.dataLim.ymax + 0.1) / 10 + 0.03)
        axes.yaxis.set_major_formatter(_percent)
    _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    """Above the panel, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(4, 40 // (max(map(len, labels)) + 4)))
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * (rows - 1))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=FONT_SIZE)


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
    """The interquartile mean of scores [points, runs] with its interval at every point; of the runs that have one."""
    own = dict(style[label])
    if marker is not None:
        own["marker"] = marker
    estimate = _typical_of_points(scores)
    axes.plot(horizontal, estimate.value, label=_plain(label), markersize=4, linewidth=1.6, **own)
    if estimate.low is not None:
        axes.fill_between(horizontal, estimate.low, estimate.high, color=own["color"], alpha=0.18, linewidth=0)


def _typical_of_points(scores: np.ndarray) -> Estimate:
    """At every point, of the runs that have a number there; not a number where none has."""
    if not np.isnan(scores).any():
        return bootstrap([scores], interquartile_mean)
    nothing = Estimate(np.nan, None, None, 0)
    points = [typical(own) if len(own := point[~np.isnan(point)]) else nothing for point in scores]
    ends = [[getattr(point, end) for point in points] for end in ("value", "low", "high")]
    value, low, high = (np.array(own, dtype=np.float64) for own in ends)  # None is not a number
    return Estimate(value, low, high, scores.shape[1])


def _interval(axes: Axes, row: float, estimate: Estimate, colour: str) -> None:
    if estimate.low is not None:
        axes.plot(
            [estimate.low, estimate.high], [row, row], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt"
        )
    axes.plot([estimate.value], [row], marker="|", markersize=16, markeredgewidth=2.5, color=colour)


def _plain(label: str) -> str:
    """A label as it is: matplotlib takes what stands between dollars for mathematics, and leaves out what begins with a
    low line."""
    text = for_terminal(label).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _smooth(values: np.ndarray) -> np.ndarray:
    """The mean of the last few values up to each."""
    return np.array([values[max(0, end - SMOOTHING) : end].mean() for end in range(1, len(values) + 1)])


def _percent(value: float, _position: object) -> str:
    return f"{value:.0%}"
