"""Does a tiny model learn a maze by `hgpo-gym verl` as by `hgpo-gym train`, at the same settings and seed, on CPUs?

    python -m benchmarks.verl_learning --to CSV     # with verl==0.9.1; about ten minutes on two busy cores

Success while training is a mean over blocks of iterations. Draws differ: verl has two servers.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hgpo_gym.runs.directory import read_metrics
from tests.verl.cpu_run import MAZE, cpu_command
from tests.verl.maze_model import save_maze_model

SETTINGS = [
    *(setting for setting in MAZE if not setting.startswith("gpus=")),
    *("env.sections=2", "rollout.num_tasks=4", "evaluation.every=0", "evaluation.tasks=1", "checkpoint.every=1000"),
]
OURS = ["model=pretrained", "engine=transformers"]
BLOCK = 4
"""Iterations a line."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="a CSV file")
    parser.add_argument("--iterations", type=int, default=16, help=f"a multiple of {BLOCK} (default 16)")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hgpo_gym-verl-") as name:
        folder = Path(name)
        save_maze_model(folder / "model")
        settings = [*SETTINGS, f"model.path={folder / 'model'}", f"trainer.iterations={parsed.iterations}"]
        verl, environment = cpu_command([*settings, f"run_dir={folder / 'verl'}", "gpus=2"], [], folder / "recorded")
        ours = [sys.executable, "-m", "hgpo_gym", "train", *settings, *OURS, f"run_dir={folder / 'train'}"]
        for command in (ours, verl):
            subprocess.run(command, env=environment, check=True)
        curves = {run: success(folder / run) for run in ("verl", "train")}
    lines = [["iterations", *curves]]
    for first in range(0, parsed.iterations, BLOCK):
        means = (f"{np.mean(curve[first : first + BLOCK]):.3f}" for curve in curves.values())
        lines.append([f"{first + 1}-{first + BLOCK}", *means])
    print("\n".join(",".join(line) for line in lines))
    if parsed.to:
        with parsed.to.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


def success(run: Path) -> list[float]:
    return [line["success"] for line in read_metrics(run)]


if __name__ == "__main__":
    main()
