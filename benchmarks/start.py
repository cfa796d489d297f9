"""Seconds of the processor until commands end, beside an import of torch in the same run.

python -m benchmarks.start
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence

COMMANDS = (
    ("hgpo-gym --help", ["--help"]),
    ("hgpo-gym envs", ["envs"]),
    (
        "hgpo-gym train model=tabular, one iteration",
        ["train", "model=tabular", "trainer.iterations=1", "run_dir={run}"],
    ),
    (
        "hgpo-gym train model=tabular, 40 iterations",
        ["train", "model=tabular", "trainer.iterations=40", "run_dir={run}"],
    ),
    ("hgpo-gym report of that run", ["report", "{run}"]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="the least counts (default 3)")
    repeats = parser.parse_args().repeats
    baseline = min(seconds_of(["-c", "import torch"]) for _ in range(repeats))
    print(f"{'import torch':<48}{baseline:6.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        runs = 0
        for name, words in COMMANDS:
            times = []
            for _ in range(repeats):
                runs += words[0] == "train"  # a report is of the last run
                given = [word.format(run=f"{folder}/{runs}") for word in words]
                times.append(seconds_of(["-m", "hgpo_gym", *given]))
            print(f"{name:<48}{min(times):6.2f} s   {min(times) / baseline:5.2f} times", flush=True)


def seconds_of(arguments: Sequence[str]) -> float:
    """Return the seconds of the processor that a Python process takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
