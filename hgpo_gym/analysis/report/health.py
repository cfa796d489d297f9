"""What a report says of how training itself went: its warnings, and the numbers of the update."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hgpo_gym.analysis.report import figures
from hgpo_gym.analysis.report.blocks import Column, Items, Paragraph, Picture, Section, Table, Value
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.intervals import typical
from hgpo_gym.analysis.report.load import Comparison, RunRecord
from hgpo_gym.runs.diagnostics import Check, Diagnostic, check_numbers, diagnose
from hgpo_gym.runs.metric_table import METRICS, SHARE, UPDATE
from hgpo_gym.runs.run_files import damage_named

LENGTHS = ("prompt_tokens", "answer_tokens", "truncated_fraction", "episode_length")
DRAWN = (
    *("loss", "kl_behaviour", "kl_reference", "entropy", "clip_fraction", "gradient_norm", "mismatch_mean"),
    *("learning_rate", "answer_tokens"),
)
"""Metrics that have a picture."""
ENDS = 5
"""Iterations that the first and the final number are means of."""
COURSE = tuple(Column(title, "number") for title in ("first", "lowest", "highest", "final"))
NOTHING_WRONG = "No sign that training went wrong in any run."


def warnings(comparison: Comparison) -> Section:
    """The signs that training went wrong, in any run: a sentence each, with how many runs show it."""
    shown: defaultdict[tuple[str, Check], list[tuple[RunRecord, Diagnostic]]] = defaultdict(list)
    for label, runs in comparison.runs.items():
        for run in runs:
            with damage_named(run.path / "config.yaml"):
                check_numbers(run.settings)
            with damage_named(run.path / "metrics.jsonl"):
                found = diagnose(run.metrics, run.settings)
            for diagnostic in found:
                shown[label, diagnostic.check].append((run, diagnostic))
    if not shown:
        return Section("Health", [Paragraph(NOTHING_WRONG)], headline=True)
    texts = [_warning(label, own, len(comparison.runs[label])) for (label, _), own in shown.items()]
    return Section("Warnings", [Items(tuple(texts))], headline=True)


def _warning(label: str, own: Sequence[tuple[RunRecord, Diagnostic]], count: int) -> str:
    """Of the run that shows it first."""
    run, first = min(own, key=lambda one: one[1].iterations[0])
    which = f"{label} seed {run.seed}" if len(own) == 1 else f"{len(own)} of {count} runs of {label}"
    begins = "" if len(own) == 1 else f", first in seed {run.seed}"
    return f"{which}: {first.seen}{begins}, {first.when}. {first.cause} {first.remedy}"


def update(comparison: Comparison, style: Styles) -> Section:
    """What the policy updates did: all their metrics, and the lengths of what they learned from."""
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
            figures.update_curve(having, style, metric, METRICS[metric].title, share=METRICS[metric].unit == SHARE),
        )
        for metric in DRAWN
        if (having := comparison.recording_any(metric)).runs
    ]
    return Section("The update", [Table("update", caption, columns, tuple(rows)), *pictures] if rows else [])


def course_of(curves: Sequence[np.ndarray]) -> tuple[Value, ...] | None:
    """What stands in the columns `COURSE` for a metric's curves, float64[iterations] of each run; None where they have
    no value."""
    own = [curve[~np.isnan(curve)] for curve in curves]
    own = [curve for curve in own if len(curve)]
    if not own:
        return None
    everything = np.concatenate(own)
    first, last = (
        typical([part.mean() for part in parts])
        for parts in ([curve[:ENDS] for curve in own], [curve[-ENDS:] for curve in own])
    )
    return first, float(everything.min()), float(everything.max()), last
