"""The findings of `hgpo-gym estimator-bias`, as tables, CSV files and a picture."""

import csv
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hgpo_gym.analysis.estimator_bias.comparison import Stage
from hgpo_gym.analysis.report.intervals import student_quantile
from hgpo_gym.creditbench.measure import Errors

SMALLEST = 1e-2
"""The smallest number in the picture: a measured squared bias scatters around 0 if the true one is 0."""

COVERED = 0.99
"""Below this share of measured steps, the caption mentions it."""
UNKNOWN = "-"
"""The text for an estimator without a unit that no positive factor fits."""
MARKERS = ".sxv^"
"""A new marker for every ten colours."""


@dataclass(frozen=True)
class Finding:
    """The errors of one estimator. `steps` names the part of the episode: `all`, or `4 to 7`."""

    stage: str
    group_size: int
    steps: str
    estimator: str
    errors: Errors


def show(
    findings: Sequence[Finding],
    stages: Sequence[Stage],
    group_size: int,
    without_unit: Collection[str],
    console: Console,
) -> None:
    """Print a table for each stage: errors at one group size, and the bias in the largest groups.

    `without_unit` holds the labels of estimators that were compared after a factor was fitted. Estimators are sorted by
    their cosine, the best first. The errors of estimators with a unit and without one are not on the same scale; a
    factor does not change the cosine.
    """
    sizes = sorted({finding.group_size for finding in findings})
    displayed_size = group_size if group_size in sizes else sizes[0]
    for stage in stages:
        table = Table(
            title=f"{stage.name}, success {stage.success:.0%}, groups of {displayed_size}",
            caption=_caption(
                stage, sizes[-1] if displayed_size != sizes[-1] else None, _first(findings, stage, displayed_size)
            ),
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        columns = ["estimator", "bias²", "variance", "error", "sign", "cosine"]
        for column in columns + [f"in {sizes[-1]}s"] * (displayed_size != sizes[-1]):
            name = column == "estimator"  # never shortened: in a narrow terminal the numbers take two lines
            table.add_column(column, justify="left" if name else "right", no_wrap=name)
        overall = {
            (finding.estimator, finding.group_size): finding.errors
            for finding in findings
            if finding.stage == stage.name and finding.steps == "all"
        }
        labels = dict.fromkeys(label for label, _ in overall)
        for label in sorted(labels, key=lambda label: -overall[label, displayed_size].cosine):
            errors = overall[label, displayed_size]
            half = student_quantile(errors.blocks)
            table.add_row(
                label + "*" * (label in without_unit),
                _number(errors.bias2),
                _number(errors.variance),
                f"{_number(errors.error)} ± {_number(half * errors.error_se)}",
                f"{errors.sign_agreement:.0%}" if isfinite(errors.sign_agreement) else UNKNOWN,
                f"{errors.cosine:.3f} ± {half * errors.cosine_se:.3f}",
                *[_number(overall[label, sizes[-1]].bias2)] * (displayed_size != sizes[-1]),
            )
        console.print(table)


def _number(value: float) -> str:
    if not isfinite(value):
        return UNKNOWN
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _first(findings: Sequence[Finding], stage: Stage, group_size: int) -> Errors:
    """Return the errors of any estimator, for the fields that all of them share."""
    return next(
        finding.errors
        for finding in findings
        if (finding.stage, finding.group_size, finding.steps) == (stage.name, group_size, "all")
    )


def _caption(stage: Stage, largest: int | None, errors: Errors) -> str:
    sentences = [
        "In units of the mean squared advantage; sorted by cosine. ±: 95 % intervals.",
        "* has no unit: a factor was fitted first, so that the error is 1 / cosine² - 1; -: none above 0 fits.",
    ]
    if largest:
        sentences.append(f"in {largest}s: bias² in groups of {largest}.")
    if errors.coverage < COVERED:
        sentences.append(
            f"bias² and variance: of the {errors.coverage:.0%} of steps whose history and action other groups have "
            "too; rare ones are further off. bias.episodes raises it."
        )
    if noise := errors.truth_noise:
        sentences.append(f"The true advantages are estimates, with a noise of {_number(noise)}, which is taken out.")
    if stage.context_bias:
        levels = ", ".join(f"{bias:.2f}" for bias in stage.context_bias)
        sentences.append(f"Exact bias² of the mean of one level, in groups without limit, levels 0, 1, ...: {levels}")
    return "\n".join(sentences)


def write_csv(findings: Sequence[Finding], stages: Sequence[Stage], folder: Path) -> None:
    """Write `findings.csv`, a line for each finding, and `context_bias.csv`, a line for each level and stage."""
    success = {stage.name: stage.success for stage in stages}
    with (folder / "findings.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["stage", "success", "group_size", "steps", "estimator", *Errors.__dataclass_fields__])
        for finding in findings:
            numbers = [f"{value:.6g}" for value in asdict(finding.errors).values()]
            identifiers = [
                finding.stage,
                f"{success[finding.stage]:.4f}",
                finding.group_size,
                finding.steps,
                finding.estimator,
            ]
            writer.writerow([*identifiers, *numbers])
    with (folder / "context_bias.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["stage", "level", "bias2"])
        for stage in stages:
            writer.writerows([stage.name, level, f"{bias:.6g}"] for level, bias in enumerate(stage.context_bias))


def draw(findings: Sequence[Finding], stages: Sequence[Stage], path: Path, title: str) -> None:
    """Draw a row of panels for each stage: squared bias, error and cosine against the group size."""
    labels = list(dict.fromkeys(finding.estimator for finding in findings))
    figure = Figure(figsize=(11, max(2.7 * len(stages), 1 + 0.18 * len(labels))), layout="constrained")
    rows = figure.subplots(len(stages), 3, sharex=True, sharey="col", squeeze=False)
    for stage, axes in zip(stages, rows, strict=True):
        curves: dict[str, dict[int, Errors]] = {}
        for finding in findings:
            if finding.stage == stage.name and finding.steps == "all":
                curves.setdefault(finding.estimator, {})[finding.group_size] = finding.errors
        for number, (label, curve) in enumerate(curves.items()):
            line_style = {"label": label, "color": f"C{number % 10}", "marker": MARKERS[number // 10 % len(MARKERS)]}
            sizes = sorted(curve)
            errors = [curve[size] for size in sizes]
            axes[0].plot(sizes, [max(error.bias2, SMALLEST) for error in errors], **line_style, markersize=4)
            axes[1].plot(sizes, [max(error.error, SMALLEST) for error in errors], **line_style, markersize=4)
            axes[2].plot(sizes, [error.cosine for error in errors], **line_style, markersize=4)
        axes[0].set(ylabel=f"{stage.name}\nsuccess {stage.success:.0%}", yscale="log")
        axes[1].set(yscale="log")
        for panel in axes:
            _tidy(panel, sorted({finding.group_size for finding in findings}))
    for panel, panel_title in zip(rows[0], ("squared bias", "error: squared bias + variance", "cosine"), strict=True):
        panel.set_title(panel_title)
    for panel in rows[-1]:
        panel.set_xlabel("group size")
    rows[0][2].legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(title)
    figure.savefig(path, dpi=70)


def _tidy(panel: Axes, sizes: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.grid(alpha=0.3)
