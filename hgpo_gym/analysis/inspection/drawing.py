"""The graph of observations as a picture. Time runs down the page; an observation stands where it was first seen."""

from collections import defaultdict

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from hgpo_gym.analysis.inspection.graph import NOT_WON, WON, Edge, Graph

WIDTH = 5.0
ROW_HEIGHT = 0.75
END_COLOURS = {WON: "#009E73", NOT_WON: "#888888"}
COLOURS = ListedColormap(colormaps["viridis_r"](np.linspace(0.15, 1, 256)))
"""Without the lightest colours, which are invisible on white."""
SHIFT = 0.16
Position = tuple[float, float]


def draw_graph(graph: Graph) -> Figure:
    """Return the picture. Circles are observations, by number; an arrow is any action that led from one to another."""
    positions = _positions(graph)
    arrows = _arrows(graph)
    rows = 1 + max(-vertical for _, vertical in positions.values())
    figure = Figure(figsize=(WIDTH, 0.9 + ROW_HEIGHT * rows), layout="constrained")
    axes = figure.subplots()
    returns = [mean_return for _, mean_return in arrows.values()]
    # Normalize divides by the range, which is 0 if all returns are equal.
    norm = Normalize(min(returns), max(max(returns), min(returns) + 1e-9))
    max_count = max(count for count, _ in arrows.values())
    for (source, target), (count, mean_return) in arrows.items():
        _arrow(
            axes,
            positions[source],
            positions[target],
            color=to_hex(COLOURS(norm(mean_return))),
            linewidth=0.6 + 3.4 * count / max_count,
        )
    for number in graph.nodes:
        _label(axes, positions[number], str(number), "circle,pad=0.3", "#ffffff", "#1b1f24")
    for end, colour in END_COLOURS.items():
        if end in positions:
            _label(axes, positions[end], "won" if end == WON else "not won", "round,pad=0.35", colour, colour, "white")
    axes.set(xlim=(-0.08, 1.08), ylim=(-rows + 0.4, 0.6))
    axes.axis("off")
    scale = ScalarMappable(norm, COLOURS)
    figure.colorbar(scale, ax=axes, orientation="horizontal", label="mean return", shrink=0.7, aspect=35, pad=0.01)
    return figure


def _arrows(graph: Graph) -> dict[tuple[int, int], tuple[int, float]]:
    """Return the count and mean return of all actions together that led from one place to another."""
    edges: defaultdict[tuple[int, int], list[Edge]] = defaultdict(list)
    for edge in graph.edges:
        edges[edge.source, edge.target].append(edge)
    totals = {}
    for ends, parallel in edges.items():
        count = sum(edge.count for edge in parallel)
        totals[ends] = count, sum(edge.count * edge.mean_return for edge in parallel) / count
    return totals


def _positions(graph: Graph) -> dict[int, Position]:
    """Return x in [0, 1] and y = -row of each observation, by its first step; empty rows are left out, ends come last.

    Every other row is shifted, so that long arrows pass beside its observations.
    """
    by_step: defaultdict[int, list[int]] = defaultdict(list)
    for node in graph.nodes.values():
        by_step[node.first_step].append(node.number)
    rows = [by_step[step] for step in sorted(by_step)]
    rows.append([end for end in END_COLOURS if any(edge.target == end for edge in graph.edges)])
    return {
        number: ((index + 1) / (len(row) + 1) + (-1) ** height * SHIFT / len(row), -float(height))
        for height, row in enumerate(rows)
        for index, number in enumerate(row)
    }


def _arrow(axes: Axes, start: Position, end: Position, *, color: str, linewidth: float) -> None:
    """Draw an arrow: straight to the next row, curved if it goes back or skips rows, a loop to its own start."""
    rows = start[1] - end[1]
    bow = 0.0 if rows == 1 else min(0.12 + 0.05 * abs(rows), 1.2 / max(1, abs(rows)))  # long ones stay on the page
    gaps = 11, 12
    if start == end:
        horizontal, vertical = start
        start, end, bow, gaps = (horizontal, vertical + 0.1), (horizontal, vertical - 0.1), -1.6, (2, 2)
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            connectionstyle=f"arc3,rad={bow}",
            arrowstyle="-|>",
            mutation_scale=11,
            color=color,
            linewidth=linewidth,
            alpha=0.8,
            shrinkA=gaps[0],
            shrinkB=gaps[1],
        )
    )


def _label(axes: Axes, position: Position, text: str, shape: str, fill: str, edge: str, ink: str = "#1b1f24") -> None:
    axes.text(
        *position, text, ha="center", va="center", fontsize=10, color=ink, zorder=3,
        bbox={"boxstyle": shape, "facecolor": fill, "edgecolor": edge},
    )  # fmt: skip
