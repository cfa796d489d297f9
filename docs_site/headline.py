"""The headline comparison from its CSV: the protocol, the table and the heat map of the results page, README's rows."""

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import NamedTuple

import numpy as np

from docs_site.links import ROOT
from docs_site.markdown import results, table
from hgpo_gym.analysis.report.intervals import (
    Estimate,
    at_shared_seeds,
    corrected_p_values,
    mean,
    sign_flip_p_value,
)

SOURCE = ROOT / "benchmarks" / "results" / "headline.csv"
"""A line a run, by benchmarks.headline; its first lines, `# ...`, say what else the runs have in common."""
BASELINE = "grpo"
SIGNIFICANCE = 0.05
LIMIT = 10.0
"""Points from which on the colours of the heat map are the same."""
WHILE_TRAINING, FINAL = "while_training", "final"
MEASURES = {
    WHILE_TRAINING: "while training: mean success of all iterations",
    FINAL: "after training: success on held-out tasks",
}


class Environment(NamedTuple):
    """A row of the table: its title, the policy that is trained, and the column of the CSV."""

    title: str
    policy: str
    measure: str


ENVIRONMENTS = {
    "halls": Environment("Maze, halls look alike", "table", WHILE_TRAINING),
    "chance": Environment("Maze, actions slip", "table", WHILE_TRAINING),
    "plates": Environment("Maze, rooms named", "table", WHILE_TRAINING),
    "alfworld": Environment("ALFWorld", "features", FINAL),
    "alfworld_warm": Environment("ALFWorld after BC", "features", FINAL),
    "webshop": Environment("WebShop", "features", FINAL),
    "webshop_warm": Environment("WebShop after BC", "features", FINAL),
    "secret_word": Environment("SecretWord after BC", "language model", FINAL),
}
PAGES = {"grpo": "grpo.md", "gigpo": "gigpo.md", "hgpo": "hgpo.md", "nested_bellman": "ours.md#nested_bellman"}
"""The pages of methods in docs/methods; the others have a card."""
ALL_ESTIMATORS = "all_estimators.md#"
MAZES = tuple(name for name, environment in ENVIRONMENTS.items() if environment.measure == WHILE_TRAINING)

Runs = Mapping[str, Mapping[str, Mapping[int, Mapping[str, str]]]]
"""The columns of a run, by environment, algorithm and seed."""


@cache
def read() -> tuple[str, Runs]:
    """Return what the comments of the CSV say, and the runs of the environments that are shown."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    comments = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    runs: dict[str, dict[str, dict[int, Mapping[str, str]]]] = {name: {} for name in ENVIRONMENTS}
    for run in csv.DictReader(line for line in lines if not line.startswith("#")):
        runs[run["environment"]].setdefault(run["algorithm"], {})[int(run["seed"])] = run
    return comments, runs


def algorithms() -> list[str]:
    """Return the compared algorithms in the order of the CSV, the baseline first."""
    return list(read()[1][MAZES[0]])


def success(environment: str, algorithm: str) -> dict[int, float]:
    """Return the percentage that the environment's measure has, by seed."""
    runs = read()[1][environment][algorithm]
    return {seed: 100 * float(run[ENVIRONMENTS[environment].measure]) for seed, run in runs.items()}


def headline(part: str) -> str:
    """Return a part of the results page, `protocol` or `table`."""
    return {"protocol": protocol, "table": results_table}[part]()


def protocol() -> str:
    """Return what the runs have in common, as a box."""
    comments, _ = read()
    policies = (
        "Mazes: a softmax table (`model=tabular`)",
        "ALFWorld and WebShop: a network over hashed text features (`model=features`)",
        "SecretWord: a language model of 0.15 million parameters from scratch (`model=tiny`)",
    )
    lines = [
        f"**Policies.** {'; '.join(policies)}. No pretrained language model.",
        f"**Methods.** {', '.join(f'`{name}`' for name in algorithms())}. Tasks, seeds and update (PPO) are equal.",
        "**Measure.** Mazes: mean success of all iterations. Others: success on held-out tasks after training.",
        "**Intervals.** Means over training seeds with 95 % t intervals.",
        "**BC.** Behaviour cloning from expert episodes comes first; without it the policy starts from scratch.",
        f"**Optimiser steps.** {comments} {_optimizer_steps()}".rstrip(),
    ]
    return '!!! info "Protocol"\n\n' + "\n".join(f"    - {line}" for line in lines) + "\n"


def _optimizer_steps() -> str:
    """Return the number of optimiser steps that every run of an environment has made, by environment."""
    found = []
    for name, by_algorithm in read()[1].items():
        (steps,) = {run["optimizer_steps"] for runs in by_algorithm.values() for run in runs.values()}
        found.append(f"{ENVIRONMENTS[name].title} {steps}")
    return f"Steps of every run: {'; '.join(found)}."


def results_table() -> str:
    """Return the success of every method in every environment."""
    numbers = table(
        ["environment (seeds)", *map(_breakable, algorithms())],
        (
            [
                f"{environment.title} ({len(success(name, BASELINE))})",
                *(_with_interval(mean(list(success(name, algorithm).values()))) for algorithm in algorithms()),
            ]
            for name, environment in ENVIRONMENTS.items()
        ),
    )
    return results(numbers.replace("\u00a0±", " ±"))  # a phone has the interval below the mean


def rows(folder: str) -> str:
    """Return README's table: a row for each method, which links to its page in `folder`; the mazes are one column."""
    others = [name for name in ENVIRONMENTS if name not in MAZES]

    def mazes(algorithm: str) -> list[float]:
        by_maze = [success(name, algorithm) for name in MAZES]
        return [float(np.mean([maze[seed] for maze in by_maze])) for seed in by_maze[0]]

    return table(
        ["method", "three mazes", *(ENVIRONMENTS[name].title for name in others)],
        (
            [
                f"[{_breakable(algorithm)}]({folder}/{_page(_short(algorithm))})",
                _with_interval(mean(mazes(algorithm))),
                *(_with_interval(mean(list(success(name, algorithm).values()))) for name in others),
            ]
            for algorithm in algorithms()
        ),
    )


def _short(algorithm: str) -> str:
    """Return the name alone: the protocol has the options."""
    return algorithm.partition(" ")[0]


def _page(name: str) -> str:
    return PAGES.get(name, ALL_ESTIMATORS + name)


def _breakable(algorithm: str) -> str:
    """Return the name as Markdown that may break after an underscore, for narrow columns."""
    return _short(algorithm).replace("_", r"\_<wbr>")


def _with_interval(estimate: Estimate) -> str:
    """Return mean and half width; no line breaks inside it."""
    return f"{estimate.value:.1f}\u00a0±\u00a0{estimate.high - estimate.value:.1f}"


LABELS, CELL, ROW, TOP = 148, 48, 30, 60
"""Pixels: the width of row labels and of a cell, the height of a row, and of the title with the column labels."""
BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
STYLE = """text { font: 12px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
.label { text-anchor: start; } .title { font-weight: 600; text-anchor: start; } .sure { font-weight: 700; }
.light { fill: #ffffff; } .small { font-size: 11px; }"""


def heat_map() -> str:
    """Return an SVG: the points of every method over the baseline at the same seed, environment by environment."""
    others = [name for name in algorithms() if name != BASELINE]
    cells = {
        (row, column): at_shared_seeds(success(row, column), success(row, BASELINE))
        for row in ENVIRONMENTS
        for column in others
    }
    sure = dict(zip(cells, _significant(list(cells.values())), strict=True))
    width = LABELS + CELL * len(others) + 2
    parts = [f'<text class="title" x="4" y="18">Points over {BASELINE.upper()}, same seeds; bold: p &lt; 0.05</text>']
    for place, name in enumerate(others):
        x = LABELS + CELL * (place + 0.5)
        words = _short(name).replace("nested_bellman", "nested_ bellman").split()
        for line, word in enumerate(words):
            parts.append(
                f'<text class="small" x="{x}" y="{TOP - 6 - 13 * (len(words) - 1 - line)}">{escape(word)}</text>'
            )
    y, measure = TOP, ""
    for row, environment in ENVIRONMENTS.items():
        if environment.measure != measure:
            measure = environment.measure
            parts.append(f'<text class="label small" x="4" y="{y + 16}">{escape(MEASURES[measure])}</text>')
            y += 24
        parts.append(f'<text class="label" x="4" y="{y + 19}">{escape(environment.title)}</text>')
        for place, column in enumerate(others):
            parts += _cell(LABELS + CELL * place, y, float(np.mean(cells[row, column])), sure=sure[row, column])
        y += ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * 1.3:.0f}" viewBox="0 0 {width} {y + 4}">'
        f'<style>{STYLE}</style><rect width="{width}" height="{y + 4}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _cell(x: float, y: float, points: float, *, sure: bool) -> list[str]:
    share = min(abs(points) / LIMIT, 1.0)
    colour = "".join(f"{round(255 - share * (255 - part)):02x}" for part in (BLUE if points > 0 else ORANGE))
    classes = " ".join(name for name, holds in (("sure", sure), ("light", share > 0.6)) if holds)
    return [
        f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 2}" fill="#{colour}"/>',
        f'<text class="{classes}" x="{x + CELL / 2}" y="{y + 19}">{points:+.1f}</text>',
    ]


def _significant(differences: Sequence[np.ndarray]) -> list[bool]:
    """Return for each whether flipping its signs tells it from 0, corrected for how many there are."""
    p_values = corrected_p_values([sign_flip_p_value(one) for one in differences])
    return [bool(p < SIGNIFICANCE) for p in p_values]
