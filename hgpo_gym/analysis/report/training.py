"""The training of the runs of a comparison: credit assignment, time, and how to reproduce it."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from hgpo_gym.advantages.batch import SIZE_BOUNDS
from hgpo_gym.analysis.report import figures
from hgpo_gym.analysis.report.blocks import Code, Column, Paragraph, Picture, Section, Table, Value
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.intervals import typical
from hgpo_gym.analysis.report.load import COSTS, PARTS, Comparison, FinishedRun
from hgpo_gym.runs.metric_table import METRICS, SHARE

SIZE_NAMES = (
    *(f"{low + 1} to {high}" if high > low + 1 else str(high) for low, high in pairwise((0, *SIZE_BOUNDS))),
    f"over {SIZE_BOUNDS[-1]}",
    "no history",
)
"""Names of the size classes in metrics.jsonl, then that of steps in no group."""
CREDIT_METRICS = {
    "advantage_zero_share": "no_signal",
    "advantage_mean": "advantage_mean",
    "advantage_std": "advantage_std",
}
"""The name of the picture of each metric."""


SELECTED = {"rounds": "rounds, an iteration", "groups_kept": "groups kept, an iteration"}
"""Titles of the metrics of a sampler's selection."""


def rollout_costs(comparison: Comparison) -> Section:
    """Return the cost of the runs' rollouts, and the part of it that was learned from."""
    rows: list[tuple[Value, ...]] = [
        (
            label,
            *(_mean(runs, cost, lambda curve: float(curve.sum())) for cost in COSTS),
            *(_mean(runs, metric, lambda curve: float(curve.mean())) for metric in SELECTED),
            _mean(runs, "group_sizes", lambda sizes: float(sizes[:, 0].sum())),
            _mean(runs, "optimizer_steps", lambda curve: float(curve.sum())),
        )
        for label, runs in comparison.runs.items()
    ]
    columns = (
        Column("algorithm"),
        *(Column(f"{title}, a run", "whole") for title in COSTS.values()),
        *(Column(title, "number") for title in SELECTED.values()),
        Column("steps kept, a run", "whole"),
        Column("optimiser steps, a run", "whole"),
    )
    caption = (
        "Means over runs. Steps, episodes and tokens are all that were played, whether they were learned from or not. "
        "Kept is what credit assignment saw; in a team every response is a step of it. An optimiser step is a "
        "mini-batch that has a response with an advantage; with trainer.zero_advantage=keep or a KL loss, any. A "
        "dash: not recorded."
    )
    sampled = any(run.settings["sampler.name"] != "in_order" for run in comparison.all_runs)
    return Section("Played and kept", [Table("played", caption, columns, tuple(rows))], headline=sampled)


def _mean(runs: Sequence[FinishedRun], metric: str, total: Callable[[np.ndarray], float]) -> float | None:
    """Return the mean over runs, if all have the metric."""
    return float(np.mean([total(run.curve(metric)) for run in runs])) if all(run.has(metric) for run in runs) else None


def _form(metric: str) -> Literal["share", "number"]:
    return "share" if METRICS[metric].unit == SHARE else "number"


def credit_assignment(comparison: Comparison, style: Styles) -> Section:
    recording = {metric: comparison.recording(metric) for metric in CREDIT_METRICS}
    rows: list[tuple[Value, ...]] = [
        (
            label,
            *(
                typical([run.curve(metric).mean() for run in runs]) if label in recording[metric].runs else None
                for metric in CREDIT_METRICS
            ),
        )
        for label, runs in comparison.runs.items()
    ]
    columns = (
        Column("algorithm"),
        *(Column(METRICS[metric].title, _form(metric)) for metric in CREDIT_METRICS),
    )
    caption = f"Means over all iterations. {METRICS['advantage_zero_share'].meaning}"
    pictures = [
        Picture(
            name,
            METRICS[metric].meaning,
            figures.training_curve(
                recording[metric], style, metric, METRICS[metric].title, share=_form(metric) == "share"
            ),
        )
        for metric, name in CREDIT_METRICS.items()
        if comparison.has_curves and recording[metric].runs
    ]
    return Section("Credit assignment", [Table("credit_assignment", caption, columns, tuple(rows)), *pictures])


def group_sizes(comparison: Comparison) -> Section:
    """Return the number of steps to compare with, at each level of the hierarchy."""
    shares = {
        f"{label}, level {level}": level_shares
        for label, runs in comparison.recording("group_sizes").runs.items()
        for level, level_shares in enumerate(_shares_by_size(runs))
    }
    columns = (Column("algorithm, level"), *(Column(name, "share") for name in SIZE_NAMES))
    caption = (
        "Share of steps by how many steps of their task group share their observation (level 0), the last two (level "
        "1) and so on, themselves included; over all iterations and runs. A step on its own learns nothing at that "
        "level; at the start of an episode there is no history to share yet."
    )
    if not shares:
        return Section("Sizes of groups", [])
    rows: list[tuple[Value, ...]] = [(name, *map(float, level_shares)) for name, level_shares in shares.items()]
    bars = figures.size_shares(shares, SIZE_NAMES)
    return Section(
        "Sizes of groups",
        [
            Table("group_sizes", caption, columns, tuple(rows)),
            Picture("group_sizes", "The same as bars: dark is many companions.", bars),
        ],
    )


def _shares_by_size(runs: Sequence[FinishedRun]) -> np.ndarray:
    """Return the shares of steps by level and group size, float64[levels, sizes + 1]; the last column: no history."""
    counts = np.sum([line["group_sizes"] for run in runs for line in run.metrics], axis=0)
    steps = max(1, counts[0].sum())  # at level 0 every step is in a group; dropped episodes have none
    return np.column_stack([counts, steps - counts.sum(axis=1)]) / steps


def time(comparison: Comparison) -> Section:
    seconds = {
        label: {part: float(np.mean([run.seconds[part] / max(1, len(run.metrics)) for run in runs])) for part in PARTS}
        for label, runs in comparison.runs.items()
    }
    rows: list[tuple[Value, ...]] = [
        (
            label,
            *seconds[label].values(),
            float(np.mean([run.seconds["evaluation"] for run in runs])),
            float(np.mean([sum(run.seconds.values()) for run in runs])),
        )
        for label, runs in comparison.runs.items()
    ]
    columns = (
        Column("algorithm"),
        *(Column(f"{part}, an iteration", "seconds") for part in PARTS),
        Column("evaluation, a run", "seconds"),
        Column("everything, a run", "seconds"),
    )
    caption = "Mean over runs. Runs that went side by side on one machine slow each other down."
    return Section(
        "Time",
        [
            Table("time", caption, columns, tuple(rows)),
            Picture("time", "Seconds of an iteration by what they went to.", figures.time_shares(seconds)),
        ],
    )


def runs(comparison: Comparison, threshold: float) -> Section:
    rows = tuple(
        (
            label,
            run.seed,
            len(run.metrics),
            run.evaluations[0]["success"],
            run.final["success"],
            *run.until_threshold(threshold, comparison.evaluated_iterations),
            run.cost_after("steps")[len(run.metrics)],
            sum(run.seconds.values()),
            str(run.path),
        )
        for label, label_runs in comparison.runs.items()
        for run in label_runs
    )
    threshold_text = f"{100 * threshold:g} %"
    columns = (
        Column("algorithm"),
        Column("seed", "whole"),
        Column("iterations", "whole"),
        Column("before", "share"),
        Column("final", "share"),
        Column(f"iterations to {threshold_text}", "whole"),
        Column(f"steps to {threshold_text}", "whole"),
        Column(f"seconds to {threshold_text}", "seconds"),
        Column("environment steps", "whole"),
        Column("seconds", "seconds"),
        Column("directory"),
    )
    return Section("Runs", [Table("runs", "A line a run.", columns, rows)], folded=True)


def reproduction(comparison: Comparison) -> Section:
    """Return commands, versions and settings."""
    launches = [launch for run in comparison.all_runs for launch in run.launches]
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in launch["versions"].items()) for launch in launches
    )
    commands = dict.fromkeys(launch["command"] for launch in launches)
    settings = [f"{key}={json.dumps(value)}" for key, value in comparison.settings.items()]
    label_settings = [
        f"{label}: " + " ".join(f"{key}={json.dumps(value)}" for key, value in runs[0].compared.items())
        for label, runs in comparison.runs.items()
    ]
    return Section(
        "Commands, versions, settings",
        [
            Paragraph("The command of every start of a run, and the versions at work."),
            Code("\n".join(commands)),
            Code("\n".join(versions)),
            Paragraph("The algorithms' own settings."),
            Code("\n".join(label_settings)),
            Paragraph("What all runs have in common."),
            Code("\n".join(settings)),
        ],
        folded=True,
    )
