"""The credit benchmark's leaderboard and picture, and what its score says about training, from CSVs."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from docs_site.links import ROOT
from docs_site.markdown import results, table

SCORES = ROOT / "benchmarks" / "results" / "creditbench.csv"
HEADLINE = ROOT / "benchmarks" / "results" / "headline.csv"
DEFAULT_KEY = "observation"
MAZES = ("maze_halls", "maze_chance", "maze_plates")
TEXT = ("alfworld", "webshop", "secret_word", "sokoban", "textcraft", "search")
OF_TRAINING = {
    **{"halls": "maze_halls", "chance": "maze_chance", "plates": "maze_plates", "secret_word": "secret_word"},
    **{"alfworld": "alfworld", "alfworld_warm": "alfworld", "webshop": "webshop", "webshop_warm": "webshop"},
}
"""The environment of the benchmark by that of the headline table."""


class Entry(NamedTuple):
    """A method's scores with the default key function, and with the best one."""

    default: Mapping[str, str]
    best: Mapping[str, str]

    @property
    def name(self) -> str:
        """The estimator, without options."""
        return self.default["method"].partition(" ")[0]


def entries() -> list[Entry]:
    """Return all methods, the best first."""
    with SCORES.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))  # the best first
    best = {line["method"]: line for line in reversed(lines)}
    return [Entry(line, best[line["method"]]) for line in lines if line["key"] == DEFAULT_KEY]


def leaderboard(_: str = "") -> str:
    """Return a row for each method, the best first, and one for a second draw of the truth."""
    found = entries()
    rows = [("a second draw of the truth", f"{float(found[0].default['ceiling']):.2f}", *[""] * 7)]
    rows += [
        (
            f"[{entry.name}](all_estimators.md#{entry.name}) {' '.join(entry.default['method'].split()[1:])}".strip(),
            f"{float(entry.default['score']):.2f} ({float(entry.default['low']):.2f}\u00a0to\u00a0"
            f"{float(entry.default['high']):.2f})",
            f"{_mean(entry.default, MAZES):.2f}",
            f"{_mean(entry.default, TEXT):.2f}",
            f"{float(entry.best['score']):.2f}",
            f"{100 * float(entry.default['signs']):.0f} %",
            f"{float(entry.default['rank']):.2f}",
            f"{100 * float(entry.default['nonzero']):.0f} %",
            f"{float(entry.default['microseconds']):.1f}",
        )
        for entry in found
    ]
    return results(table(("method", "score", "mazes", "text", "best key", "signs", "rank", "nonzero", "µs"), rows))


def by_environment(_: str = "") -> str:
    """Return the cosine of each method in each environment."""
    rows = [
        (entry.default["method"], *(f"{float(entry.default[name]):.2f}" for name in (*MAZES, *TEXT)))
        for entry in entries()
    ]
    return results(table(("method", *(name.replace("_", " ") for name in (*MAZES, *TEXT))), rows))


def _mean(line: Mapping[str, str], environments: Sequence[str]) -> float:
    return float(np.mean([float(line[name]) for name in environments]))


def validity(_: str = "") -> str:
    """Return for each environment of the headline table the correlation of score and success over methods."""
    by_column: dict[str, list[float]] = {"score": [], "own": []}
    rows = []
    for environment, (success, scores) in _trained().items():
        cells = []
        for column in by_column:
            name = OF_TRAINING[environment] if column == "own" else column
            correlation = float(np.corrcoef(success, [float(line[name]) for line in scores])[0, 1])
            by_column[column].append(correlation)
            cells.append(f"{correlation:.2f}")
        rows.append((environment.replace("_", " "), str(len(scores)), *cells))
    rows.append(("**mean**", "", *map(_with_interval, by_column.values())))
    return results(table(("environment", "methods", "score", "its cosine there"), rows))


def _trained() -> dict[str, tuple[list[float], list[Mapping[str, str]]]]:
    """Return the mean success and the scores of each method that was trained, by environment."""
    scores = {entry.default["method"]: entry.default for entry in entries()}
    success: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    lines = HEADLINE.read_text(encoding="utf-8").splitlines()
    for run in csv.DictReader(line for line in lines if not line.startswith("#")):
        if run["algorithm"] in scores and run["while_training"]:
            success[run["environment"]][run["algorithm"]].append(float(run["while_training"]))
    return {
        environment: ([float(np.mean(values)) for values in methods.values()], [scores[name] for name in methods])
        for environment, methods in success.items()
    }


def _with_interval(correlations: Sequence[float]) -> str:
    """Return the mean with its 95 % interval, a bootstrap over environments."""
    drawn = np.random.default_rng(0).integers(len(correlations), size=(10_000, len(correlations)))
    low, high = np.quantile(np.array(correlations)[drawn].mean(axis=1), (0.025, 0.975))
    return f"{np.mean(correlations):.2f} ({low:.2f} to {high:.2f})"


WIDTH, HEIGHT, AXIS, LEFT, BOTTOM = 640, 400, 40, 140, 40
"""Pixels: the picture, the room of the upright axis and of the leftmost name, and of the lower axis."""
STYLE = """text { font: 13px system-ui, sans-serif; fill: #1f2328; } .middle { text-anchor: middle; }
.end { text-anchor: end; } line { stroke: #d0d7de; } circle { fill: #8c959f; } .front { fill: #0072b2; }"""


def quality_and_cost() -> str:
    """Return an SVG: the score of each method above its microseconds a step. Those that no other beats in both are
    named, where there is room."""
    points = [(float(entry.default["microseconds"]), float(entry.default["score"]), entry) for entry in entries()]
    costs = np.log10([cost for cost, _, _ in points])
    top = np.ceil(max(score for _, score, _ in points) * 10) / 10

    def x(cost: float) -> float:
        return LEFT + float((np.log10(cost) - costs.min()) / np.ptp(costs)) * (WIDTH - LEFT - 20)

    def y(score: float) -> float:
        return HEIGHT - BOTTOM - score / top * (HEIGHT - BOTTOM - 24)

    parts = [f'<text x="4" y="12">score</text><text class="end" x="{WIDTH - 8}" y="{HEIGHT - 4}">µs a step</text>']
    for tick in np.arange(0, top + 0.05, 0.1):
        parts.append(f'<line x1="{AXIS}" x2="{WIDTH - 8}" y1="{y(tick):.0f}" y2="{y(tick):.0f}"/>')
        parts.append(f'<text class="end" x="{AXIS - 6}" y="{y(tick) + 4:.0f}">{tick:.1f}</text>')
    for tick in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
        if LEFT <= x(tick) <= WIDTH:
            parts.append(f'<text class="middle" x="{x(tick):.0f}" y="{HEIGHT - BOTTOM + 18}">{tick:g}</text>')
    for cost, score, entry in points:
        front = not any(other < cost and better > score for other, better, _ in points)
        kind, name = "front" if front else "other", escape(entry.default["method"])
        place = f'cx="{x(cost):.1f}" cy="{y(score):.1f}"'
        parts.append(f'<circle class="{kind}" {place} r="5"><title>{name}</title></circle>')
        crowded = any(
            0 < x(cost) - x(other) < 20 + 7 * len(name) and abs(y(score) - y(better)) < 12
            for other, better, _ in points
        )
        if front and not crowded:
            parts.append(f'<text class="end" x="{x(cost) - 9:.0f}" y="{y(score) + 4:.0f}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}">'
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )
