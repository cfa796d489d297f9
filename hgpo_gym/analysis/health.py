"""The health of a run, from its directory: what is wrong with it. The run may be unfinished."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.analysis.report.blocks import Block, Chapter, Column, Items, Paragraph, Section, Table
from hgpo_gym.analysis.report.health import COURSE, ENDS, NOTHING_WRONG, course_of
from hgpo_gym.runs.diagnostics import diagnose
from hgpo_gym.runs.directory import finished_iterations, flatten, read_config, read_metrics
from hgpo_gym.runs.metric_table import METRICS

LEFT_OUT = ("iteration", "group_sizes", "steps_so_far", "seconds_so_far")
"""Metrics that the table leaves out: counters, and values that are no number."""


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
