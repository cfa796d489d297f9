"""Whether runs keep what they have learned: how success goes on after its first 100 %.

    hgpo-gym compare trainer.iterations=80 seeds=20 out=runs/kept
    python -m benchmarks.kept_success runs/kept
    python -m benchmarks.kept_success runs/kept --of evaluation_success

A line a run, and one an algorithm; exits with 1 where a run never reaches 100 %, or falls below --least afterwards.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hgpo_gym.runs.directory import read_config, read_metrics


class Kept(NamedTuple):
    """Of a run: the iteration of the first 100 %, None without one, and what is known of success from there on."""

    algorithm: str
    run: str
    first: int | None
    after: np.ndarray

    def line(self, least: float) -> str:
        """For a person."""
        if self.first is None:
            return f"{self.run:24}  never at 100 %"
        return (
            f"{self.run:24}  100 % at {self.first:3}; from there on lowest {self.after.min():6.1%}, mean "
            f"{self.after.mean():6.1%}, last {self.after[-1]:6.1%}, below {least:.0%}: "
            f"{(self.after < least).sum()} of {len(self.after)}"
        )


def kept(run_dir: Path, metric: str) -> Kept:
    """Of the run in that folder; `metric` may be missing in some iterations."""
    known = [(line["iteration"], line[metric]) for line in read_metrics(run_dir) if metric in line]
    first = next((index for index, (_, success) in enumerate(known) if success == 1), None)
    after = np.array([success for _, success in known[first:]]) if first is not None else np.array([])
    algorithm = read_config(run_dir)["algo"]["name"]
    return Kept(algorithm, run_dir.name, None if first is None else known[first][0], after)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line a run, and a line an algorithm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with a folder for each run")
    parser.add_argument("--of", default="success", help="success (in the rollouts) or evaluation_success")
    parser.add_argument("--least", type=float, default=0.95)
    parsed = parser.parse_args(arguments)
    runs = [kept(path.parent, parsed.of) for path in sorted(parsed.folder.glob("*/metrics.jsonl"))]
    if not runs:
        parser.error(f"no runs in {parsed.folder}: expected */metrics.jsonl")
    print("\n".join(run.line(parsed.least) for run in runs))
    failed = 0
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        own = [run for run in runs if run.algorithm == algorithm]
        fell = [run for run in own if run.first is None or run.after.min() < parsed.least]
        failed += len(fell)
        print(f"{algorithm}: {len(own) - len(fell)} of {len(own)} runs reach 100 % and keep {parsed.least:.0%}")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
