"""Estimators against exact advantages over a grid: kinds of maze, stages of training, group sizes, seeds.

    python -m benchmarks.estimator_bias --out benchmarks/results/estimator_bias_grid.csv

Each cell has the mean over seeds of the cosine and of the error after one common factor, 1 / cosine² - 1, with the half
width of a 95 % interval of the cosine (Student's t over the seeds). A seed draws tasks, episodes and batches.
"""

import argparse
import csv
import io
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich.console import Console

from hgpo_gym.analysis.estimator_bias.run import TRUE_BASELINE, BiasSettings, measure_bias
from hgpo_gym.analysis.report.intervals import student_quantile
from hgpo_gym.config.compose import load_config
from hgpo_gym.progress import Progress
from hgpo_gym.section import parse_section
from hgpo_gym.trainers.settings import RunSettings

SETTINGS = {
    "halls": [],
    "far halls": ["env.distance=2", "memory.window=3", "env.max_episode_steps=36"],
    "plates": ["env.plates=true"],
    "chance": ["env.slip=0.3"],
}
"""By name: halls that look alike; the same with signposts two corridors away; every room says where it is; three
actions in ten are replaced by a random one."""
SMALL = ["bias.tasks=2", "bias.episodes=256"]

Cell = tuple[str, str, int]


def measure_grid(seeds: int) -> dict[Cell, dict[str, list[float]]]:
    """By setting, stage and group size, each estimator's cosine in every seed."""
    cosines: dict[Cell, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for setting, overrides in SETTINGS.items():
        for seed in range(1, seeds + 1):
            config = load_config("estimator-bias", [*SMALL, *overrides, f"seed={seed}"])
            settings = parse_section(BiasSettings, config["bias"], "bias.")
            with tempfile.TemporaryDirectory() as folder:
                quiet = Progress(Console(file=io.StringIO()))
                findings = measure_bias(RunSettings.parse(config), settings, Path(folder), quiet)
            for found in findings:
                if found.steps == "all" and found.estimator != TRUE_BASELINE:
                    cell = setting, found.stage, found.group_size
                    cosines[cell][found.estimator].append(found.errors.cosine)
            print(f"{setting}, seed {seed}", flush=True)
    return cosines


def write(grid: dict[Cell, dict[str, list[float]]], seeds: int, path: Path) -> None:
    """One line a cell and estimator, the best estimator of a cell first."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", "stage", "group_size", "estimator", "cosine", "cosine_ci95", "error_scaled"])
        for cell, estimators in grid.items():
            for label, values in sorted(estimators.items(), key=lambda item: -np.mean(item[1])):
                mean = float(np.mean(values))
                half = student_quantile(seeds) * float(np.std(values, ddof=1)) / np.sqrt(seeds)
                error = f"{1 / mean**2 - 1:.4g}" if mean > 0 else "inf"
                writer.writerow([*cell, label, f"{mean:.4f}", f"{half:.4f}", error])


def main() -> None:
    """Measure the grid and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3, help="2 or more")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error(f"--seeds {options.seeds}: intervals take 2 or more.")
    write(measure_grid(options.seeds), options.seeds, options.out)


if __name__ == "__main__":
    main()
