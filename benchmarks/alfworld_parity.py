"""Plays ALFWorld games on the native engine and on TextWorld in lock step and compares everything an agent can see.

    python -m benchmarks.alfworld_parity ../shared/data/alfworld --walks 1 --steps 40

What a walk does: tests/checks/alfworld_parity.py. The first difference is printed in full; the exit status is 1 if
there is one.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from hgpo_gym.envs.alfworld.native import NativeEngine
from hgpo_gym.envs.alfworld.textworld_engine import TextWorldEngine
from tests.checks.alfworld_parity import Report, compare, with_package_rules


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="games are **/game.tw-pddl below it")
    parser.add_argument("--games", type=int, help="compare a random sample of so many games (default: all)")
    parser.add_argument("--walks", type=int, default=1, help="walks a game (default 1)")
    parser.add_argument(
        "--steps", type=int, default=40, help="commands a walk, before the planner ends it (default 40)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package-rules", action="store_true", help="with the alfworld package's domain and grammar")
    options = parser.parse_args(arguments)

    game_files = sorted(options.folder.glob("**/game.tw-pddl"))
    if not game_files:
        parser.error(f"no **/game.tw-pddl below {options.folder}")
    if options.games:
        game_files = sorted(random.Random(options.seed).sample(game_files, min(options.games, len(game_files))))
    total, started = Report(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        native, original = NativeEngine(cache=Path(folder) / "cache"), TextWorldEngine()
        for number, source in enumerate(game_files, start=1):
            game_file = with_package_rules(source, Path(folder)) if options.package_rules else source
            report = compare(game_file, native, original, options.walks, options.steps, options.seed)
            if report.differences and not total.differences:
                print(report.differences[0], flush=True)
            total.games += 1
            total.steps += report.steps
            total.wins += report.wins
            total.verbs += report.verbs
            total.differences += report.differences
            if number % 10 == 0 or number == len(game_files):
                print(f"{number}/{len(game_files)} games, {time.perf_counter() - started:.0f} s: {total}", flush=True)
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main())
