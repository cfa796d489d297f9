"""The health sections of a report: warnings about training, and the metrics of the update."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hgpo_gym.analysis.report import figures
from hgpo_gym.analysis.report.blocks import Column, Items, Paragraph, Picture, Section, Table, Value
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.intervals import typical
from hgpo_gym.analysis.report.load import Comparison, RunRecord
from hgpo_gym.runs.diagnostics import Check, Diagnostic, diagnose
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


def warnings(comparison: Comparison) -> Section:
    """Return the signs that training went wrong, in any run: a sentence each, with the number of affected runs."""
    by_check: defaultdict[tuple[str, Check], list[tuple[RunRecord, Diagnostic]]] = defaultdict(list)
    for label, runs in comparison.runs.items():
        for run in runs:
            for diagnostic in diagnose(run.metrics, run.settings):
                by_check[label, diagnostic.check].append((run, diagnostic))
    if not by_check:
        return Section("Health", [Paragraph(NOTHING_WRONG)], headline=True)
    texts = [
        _warning(label, diagnosed_runs, len(comparison.runs[label])) for (label, _), diagnosed_runs in by_check.items()
    ]
    return Section("Warnings", [Items(tuple(texts))], headline=True)


def _warning(label: str, diagnosed_runs: Sequence[tuple[RunRecord, Diagnostic]], count: int) -> str:
    """Return the warning of the run that shows it first."""
    run, first = min(diagnosed_runs, key=lambda pair: pair[1].iterations[0])
    subject = (
        f"{label} seed {run.seed}" if len(diagnosed_runs) == 1 else f"{len(diagnosed_runs)} of {count} runs of {label}"
    )
    first_seed = "" if len(diagnosed_runs) == 1 else f", first in seed {run.seed}"
    return f"{subject}: {first.seen}{first_seed}, {first.when}. {first.cause} {first.remedy}"


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
        if (recorded := comparison.recording_any(metric)).runs
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
