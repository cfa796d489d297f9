"""What `hgpo-gym estimator-bias` found, as tables, CSV and a picture."""

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
from hgpo_gym.analysis.estimator_bias.measure import Errors
from hgpo_gym.analysis.report.intervals import student_quantile

SMALLEST = 1e-2
"""What is drawn for less: a squared bias is measured without its noise, and scatters around 0 where there is none."""

COVERED = 0.99
"""The share of steps that a squared bias is measured on, below which it is said."""
UNKNOWN = "-"
"""What is drawn where no factor above 0 fits an estimator without a unit."""
MARKERS = ".sxv^"
"""Ten colours each."""


@dataclass(frozen=True)
class Finding:
    """The errors of one estimator. `steps` says at which steps of the episode: `all`, or `4 to 7`."""

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
    """A table a stage: errors at one group size, the bias also in the largest groups, the best estimator first.

    `without_unit` are the labels of those that were compared after a factor was fitted. Estimators are sorted by their
    cosine, which no factor changes: the errors of those with a unit and of those without are not on one scale.
    """
    sizes = sorted({found.group_size for found in findings})
    shown = group_size if group_size in sizes else sizes[0]
    for stage in stages:
        table = Table(
            title=f"{stage.name}, success {stage.success:.0%}, groups of {shown}",
            caption=_caption(stage, sizes[-1] if shown != sizes[-1] else None, _first(findings, stage, shown)),
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        columns = ["estimator", "bias²", "variance", "error", "sign", "cosine"]
        for column in columns + [f"in {sizes[-1]}s"] * (shown != sizes[-1]):
            name = column == "estimator"  # never shortened: in a narrow terminal the numbers take two lines
            table.add_column(column, justify="left" if name else "right", no_wrap=name)
        overall = {
            (found.estimator, found.group_size): found.errors
            for found in findings
            if found.stage == stage.name and found.steps == "all"
        }
        labels = dict.fromkeys(label for label, _ in overall)
        for label in sorted(labels, key=lambda label: -overall[label, shown].cosine):
            errors = overall[label, shown]
            half = student_quantile(errors.blocks)
            table.add_row(
                label + "*" * (label in without_unit),
                _number(errors.bias2),
                _number(errors.variance),
                f"{_number(errors.error)} ± {_number(half * errors.error_se)}",
                f"{errors.sign_agreement:.0%}" if isfinite(errors.sign_agreement) else UNKNOWN,
                f"{errors.cosine:.3f} ± {half * errors.cosine_se:.3f}",
                *[_number(overall[label, sizes[-1]].bias2)] * (shown != sizes[-1]),
            )
        console.print(table)


def _number(value: float) -> str:
    if not isfinite(value):
        return UNKNOWN
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _first(findings: Sequence[Finding], stage: Stage, group_size: int) -> Errors:
    """Those of any estimator, for what they have in common."""
    return next(
        found.errors
        for found in findings
        if (found.stage, found.group_size, found.steps) == (stage.name, group_size, "all")
    )


def _caption(stage: Stage, largest: int | None, errors: Errors) -> str:
    words = [
        "In units of the mean squared advantage; sorted by cosine. ±: 95 % intervals.",
        "* has no unit: a factor was fitted first, so that the error is 1 / cosine² - 1; -: none above 0 fits.",
    ]
    if largest:
        words.append(f"in {largest}s: bias² in groups of {largest}.")
    if errors.coverage < COVERED:
        words.append(
            f"bias² and variance: of the {errors.coverage:.0%} of steps whose history and action other groups have "
            "too; rare ones are further off. bias.episodes raises it."
        )
    if noise := errors.truth_noise:
        words.append(f"The true advantages are estimates, with a noise of {_number(noise)}, which is taken out.")
    if stage.context_bias:
        levels = ", ".join(f"{bias:.2f}" for bias in stage.context_bias)
        words.append(f"Exact bias² of the mean of one level, in groups without limit, levels 0, 1, ...: {levels}")
    return "\n".join(words)


def write_csv(findings: Sequence[Finding], stages: Sequence[Stage], folder: Path) -> None:
    """`findings.csv`, a line a finding, and `context_bias.csv`, a line a level and stage."""
    success = {stage.name: stage.success for stage in stages}
    with (folder / "findings.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["stage", "success", "group_size", "steps", "estimator", *Errors.__dataclass_fields__])
        for found in findings:
            numbers = [f"{value:.6g}" for value in asdict(found.errors).values()]
            where = [found.stage, f"{success[found.stage]:.4f}", found.group_size, found.steps, found.estimator]
            writer.writerow([*where, *numbers])
    with (folder / "context_bias.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["stage", "level", "bias2"])
        for stage in stages:
            writer.writerows([stage.name, level, f"{bias:.6g}"] for level, bias in enumerate(stage.context_bias))


def draw(findings: Sequence[Finding], stages: Sequence[Stage], path: Path, title: str) -> None:
    """A row a stage: squared bias, error and cosine against the group size."""
    labels = list(dict.fromkeys(found.estimator for found in findings))
    figure = Figure(figsize=(11, max(2.7 * len(stages), 1 + 0.18 * len(labels))), layout="constrained")
    rows = figure.subplots(len(stages), 3, sharex=True, sharey="col", squeeze=False)
    for stage, axes in zip(stages, rows, strict=True):
        curves: dict[str, dict[int, Errors]] = {}
        for found in findings:
            if found.stage == stage.name and found.steps == "all":
                curves.setdefault(found.estimator, {})[found.group_size] = found.errors
        for number, (label, curve) in enumerate(curves.items()):
            look = {"label": label, "color": f"C{number % 10}", "marker": MARKERS[number // 10 % len(MARKERS)]}
            sizes = sorted(curve)
            errors = [curve[size] for size in sizes]
            axes[0].plot(sizes, [max(one.bias2, SMALLEST) for one in errors], **look, markersize=4)
            axes[1].plot(sizes, [max(one.error, SMALLEST) for one in errors], **look, markersize=4)
            axes[2].plot(sizes, [one.cosine for one in errors], **look, markersize=4)
        axes[0].set(ylabel=f"{stage.name}\nsuccess {stage.success:.0%}", yscale="log")
        axes[1].set(yscale="log")
        for panel in axes:
            _tidy(panel, sorted({found.group_size for found in findings}))
    for panel, words in zip(rows[0], ("squared bias", "error: squared bias + variance", "cosine"), strict=True):
        panel.set_title(words)
    for panel in rows[-1]:
        panel.set_xlabel("group size")
    rows[0][2].legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(title)
    figure.savefig(path, dpi=70)


def _tidy(panel: Axes, sizes: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.grid(alpha=0.3)
