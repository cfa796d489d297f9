"""Learning curves as PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hgpo_gym.trainers.run_directory import read_metrics, read_summary

SMOOTHING = 5
"""Iterations that the success of training rollouts is averaged over."""


def plot_curves(runs: Mapping[str, Sequence[Path]], path: Path, title: str = "") -> None:
    """Success while training and in the censuses, against iterations.

    Args:
        runs: the run directories of each label; several of one label are drawn as mean and range.
        path: the PNG to write.
        title: above the picture.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    training, evaluation = figure.subplots(1, 2, sharey=True)
    for label, directories in runs.items():
        curves = [[line["success"] for line in read_metrics(directory)] for directory in directories]
        _draw(training, label, [(range(1, len(curve) + 1), _smooth(curve)) for curve in curves])
        censuses = [read_summary(directory)["censuses"] for directory in directories]
        _draw(
            evaluation,
            label,
            [([result["iteration"] for result in run], [result["success"] for result in run]) for run in censuses],
            marker="o",
        )
    training.set(title=f"training rollouts (mean of {SMOOTHING} iterations)", xlabel="iteration", ylabel="success")
    evaluation.set(title="census of the evaluation split", xlabel="iteration")
    for axes in (training, evaluation):
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _position: f"{value:.0%}")
        axes.grid(alpha=0.3)
    evaluation.legend(loc="best")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def _draw(axes: Axes, label: str, curves: Sequence[tuple[Sequence[int], Sequence[float]]], marker: str = "") -> None:
    shortest = min(len(values) for _, values in curves)
    iterations = curves[0][0][:shortest]
    stacked = np.array([values[:shortest] for _, values in curves])
    (line,) = axes.plot(iterations, stacked.mean(axis=0), marker=marker, markersize=3, label=label)
    if len(curves) > 1:
        axes.fill_between(iterations, stacked.min(axis=0), stacked.max(axis=0), color=line.get_color(), alpha=0.15)


def _smooth(values: Sequence[float]) -> list[float]:
    return [float(np.mean(values[max(0, end - SMOOTHING) : end])) for end in range(1, len(values) + 1)]
