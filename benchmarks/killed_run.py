"""A run that is killed (kill -9) at random moments and resumed each time ends like the same run left alone.

    python -m benchmarks.killed_run --kills 20
    python -m benchmarks.killed_run --kills 20 model=tiny trainer.iterations=40

How it is done, and what is compared: tests/checks/killed_run.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import transformers

from tests.checks import killed_run

DEFAULT = ["model=tabular", "env.sections=2", "trainer.iterations=60", "evaluation.every=3"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line a kill; exits with 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=Path("runs/killed"), help="folder for both runs, made anew")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=f"settings ({' '.join(DEFAULT)})")
    parsed = parser.parse_args(arguments)
    transformers.utils.logging.disable_progress_bar()
    differences = killed_run.compare(parsed.out, parsed.overrides or DEFAULT, parsed.kills, parsed.seed)
    print("\n".join(differences) or "Identical.")
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
