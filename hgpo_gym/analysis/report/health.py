"""Health: the warnings about training and the metrics of the update in a report, and the health of one run, which may
be unfinished."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.analysis.report import figures
from hgpo_gym.analysis.report.blocks import (
    Block,
    Chapter,
    Column,
    Items,
    Paragraph,
    Picture,
    Section,
    Table,
    Value,
)
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.intervals import typical
from hgpo_gym.analysis.report.load import Comparison, FinishedRun
from hgpo_gym.runs.diagnostics import Check, Diagnostic, diagnose
from hgpo_gym.runs.directory import finished_iterations, flatten, read_config, read_metrics
from hgpo_gym.runs.metric_table import METRICS, SHARE, UPDATE

LENGTHS = ("prompt_tokens", "response_tokens", "truncated_fraction", "episode_length")
DRAWN = (
    *("loss", "kl_behaviour", "kl_reference", "entropy", "clip_fraction", "gradient_norm", "mismatch_mean"),
    *("learning_rate", "response_tokens"),
)
"""Metrics that have a picture."""
ENDS = 5
"""The first and the final number are means over this many iterations."""
COURSE = tuple(Column(title, "number") for title in ("first", "lowest", "highest", "final"))
NOTHING_WRONG = "No sign that training went wrong in any run."
LEFT_OUT = ("iteration", "group_sizes", "steps_so_far", "seconds_so_far")
"""Metrics that the table leaves out: counters, and values that are no number."""


def warnings(comparison: Comparison) -> Section:
    """Return the signs that training went wrong, in any run: a sentence each, with the number of affected runs."""
    by_check: defaultdict[Check, list[tuple[str, FinishedRun, Diagnostic]]] = defaultdict(list)
    for label, runs in comparison.runs.items():
        for run in runs:
            for diagnostic in diagnose(run.metrics, run.settings):
                by_check[diagnostic.check].append((label, run, diagnostic))
    if not by_check:
        return Section("Health", [Paragraph(NOTHING_WRONG)], headline=True)
    texts = tuple(_warning(found, len(comparison.all_runs)) for found in by_check.values())
    return Section("Warnings", [Items(texts)], headline=True)


def _warning(found: Sequence[tuple[str, FinishedRun, Diagnostic]], count: int) -> str:
    """Return the warning of the run that shows it first, and the number of such runs of each algorithm."""
    label, run, first = min(found, key=lambda row: row[2].iterations[0])
    where = f"{label} seed {run.seed}"
    if len(found) > 1:
        affected = ", ".join(f"{name} {number}" for name, number in Counter(name for name, *_ in found).items())
        where = f"{len(found)} of {count} runs ({affected}), first {where}"
    return f"{where}: {first.seen}, {first.when}. {first.cause} {first.remedy}"


def update(comparison: Comparison, style: Styles) -> Section:
    """Return all metrics of the policy updates, and the lengths of the prompts and responses that they used."""
    rows: list[tuple[Value, ...]] = []
    for metric in (*UPDATE, *LENGTHS):
        for label, runs in comparison.runs.items():
            course = course_of([run.curve(metric) for run in runs])
            if course is not None:
                rows.append((METRICS[metric].title, label, *course, METRICS[metric].unit))
    columns = (Column("metric"), Column("algorithm"), *COURSE, Column("unit"))
    caption = (
        f"First and final: means over {ENDS} iterations, interquartile means over runs; lowest and highest of "
        "any iteration of any run. An iteration without anything to learn from has no update."
    )
    pictures = [
        Picture(
            f"update_{metric}",
            METRICS[metric].meaning,
            figures.update_curve(recorded, style, metric, METRICS[metric].title, share=METRICS[metric].unit == SHARE),
        )
        for metric in DRAWN
        if comparison.has_curves and (recorded := comparison.recording_any(metric)).runs
    ]
    return Section("The update", [Table("update", caption, columns, tuple(rows)), *pictures] if rows else [])


def course_of(curves: Sequence[np.ndarray]) -> tuple[Value, ...] | None:
    """Return the values of the columns `COURSE` for a metric's curves, float64[iterations] each; None if all NaN."""
    valid = [curve[~np.isnan(curve)] for curve in curves]
    valid = [curve for curve in valid if len(curve)]
    if not valid:
        return None
    all_values = np.concatenate(valid)
    first, last = (
        typical([part.mean() for part in parts])
        for parts in ([curve[:ENDS] for curve in valid], [curve[-ENDS:] for curve in valid])
    )
    return first, float(all_values.min()), float(all_values.max()), last


def health_of_run(run_dir: Path) -> Chapter:
    """Return the progress of a run, its warnings, and the course of all its metrics.

    Raises:
        FileNotFoundError: the folder holds no run.
        DamagedError: a file of the run is damaged.
    """
    settings, metrics = flatten(read_config(run_dir)), read_metrics(run_dir)
    iterations = f"{len(metrics)} of {settings['trainer.iterations']} iterations"
    about = f"{settings['env_name']}, algo={settings['algo.name']}, seed {settings['seed']}: {iterations}"
    if not metrics:
        return Chapter("", "", [Section("", [Paragraph(f"{about}. There is nothing to judge by yet.")])])
    return _judged(metrics, settings, about, finished=bool(finished_iterations(run_dir)))


def _judged(metrics: list[dict[str, Any]], settings: Mapping[str, Any], about: str, *, finished: bool) -> Chapter:
    success = np.array([line["success"] for line in metrics], float)
    ended = "" if finished else ", not finished"
    course = (
        f"success {success[:ENDS].mean():.1%} first, {success.max():.1%} at best, {success[-ENDS:].mean():.1%} final"
    )
    diagnostics = diagnose(metrics, settings)
    verdict: Block = Paragraph(NOTHING_WRONG)
    if diagnostics:
        verdict = Items(
            tuple(
                f"{diagnostic.seen}, {diagnostic.when}. {diagnostic.cause} {diagnostic.remedy}"
                for diagnostic in diagnostics
            )
        )
    return Chapter(
        "",
        "",
        [
            Section("", [Paragraph(f"{about}{ended}; {course} (means over {ENDS} iterations).")]),
            Section("Warnings" if diagnostics else "Health", [verdict]),
            Section("Metrics", [_courses(metrics)]),
        ],
    )


def _courses(metrics: list[dict[str, Any]]) -> Table:
    rows = []
    for name, metric in METRICS.items():
        curve = np.array([line.get(name, np.nan) for line in metrics], float) if name not in LEFT_OUT else np.array([])
        if (course := course_of([curve])) is not None:
            rows.append((metric.title, *course, metric.unit))
    caption = f"What each of them is: docs/reference/metrics.md. First and final: means over {ENDS} iterations."
    return Table("metrics", caption, (Column("metric"), *COURSE, Column("unit")), tuple(rows))
