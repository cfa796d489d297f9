"""The picture of docs/guides/inspecting.md: two runs of the maze by their metrics, one of which learns.

    python -m benchmarks.healthy_and_dying --runs runs/healthy_and_dying --out docs/images/healthy_and_dying.png

Takes two minutes on a core.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hgpo_gym.config.compose import load_run
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.runs.metric_table import METRICS
from hgpo_gym.trainers.run import Run

SHORT = ["trainer.iterations=25", "evaluation.every=0", "evaluation.decoding_seeds=1"]
RUNS = {"healthy": SHORT, "learning rate 1": [*SHORT, "trainer.learning_rate=1"]}
"""Settings of each."""
SHOWN = ("success", "kl_behaviour", "entropy", "zero_variance_groups", "clip_fraction", "gradient_norm")
COLOURS = ("#009E73", "#D55E00")


def draw(runs: Path) -> Figure:
    """A panel for each metric."""
    figure = Figure(figsize=(9.5, 5.2), layout="constrained")
    panels: list[Axes] = list(figure.subplots(2, len(SHOWN) // 2).flat)
    for axes, metric in zip(panels, SHOWN, strict=True):
        for name, colour in zip(RUNS, COLOURS, strict=True):
            values = [line.get(metric, np.nan) for line in read_metrics(runs / name.replace(" ", "_"))]
            axes.plot(range(1, len(values) + 1), values, "o-", color=colour, markersize=3, linewidth=1.3, label=name)
        axes.set_title(METRICS[metric].title)
        axes.set_xlabel("iteration")
        axes.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(RUNS), frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for name, overrides in RUNS.items():
        folder = arguments.runs / name.replace(" ", "_")
        with Run(load_run([*overrides, f"run_dir={folder}", "resume=auto"]), Progress()) as run:
            run.train()
    draw(arguments.runs).savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
