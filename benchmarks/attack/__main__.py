"""Under attack: hostile settings, damaged caches, run directories and names of others, clients and servers that mean no
good, odd actions, processes that are killed, and machines with little memory.

    python -m benchmarks.attack
    python -m benchmarks.attack settings cache --flips 50 --seed 1

Everything stays on this machine, and is bounded in number and time. Exits with 1 if anything ended in a traceback, gave
other numbers without a word, or was answered otherwise than documented.
"""

import argparse
import sys

from benchmarks.attack import flips, hostile_runs, killed, machine, names, odd_actions, requests, settings


def main() -> int:
    """Run the attacks, print their table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=300, help="random command lines (default 300)")
    parser.add_argument("--flips", type=int, default=50, help="of a bit, for each kind of cache entry (default 50)")
    parser.add_argument("--changes", type=int, default=40, help="to each file of a run, and names (default 40)")
    parser.add_argument("--examples", type=int, default=50, help="of schemathesis, for each operation (default 50)")
    parser.add_argument("--kills", type=int, default=20, help="of each command; workers: 5 times as many (default 20)")
    parser.add_argument("--machines", type=int, default=10, help="runs on poor machines, of each kind (default 10)")
    parser.add_argument("--actions", type=int, default=20_000, help="odd ones, an environment (default 20,000)")
    parser.add_argument("--environments", nargs="*", default=[], help="parts of their names; without it, all")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default 0)")
    parts = {
        "settings": lambda given: settings.main(given.lines, given.seed),
        "cache": lambda given: flips.main(given.flips, given.seed),
        "runs": lambda given: hostile_runs.main(given.changes, given.seed),
        "names": lambda given: names.main(given.changes, given.seed),
        "server": lambda given: requests.main(given.examples, given.seed),
        "killed": lambda given: killed.main(given.kills, given.seed),
        "actions": lambda given: odd_actions.main(given.actions, given.seed, given.environments),
        "machine": lambda given: machine.main(given.machines, given.seed),
    }
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=list(parts))
    given = parser.parse_args()
    rows = [row for part in given.parts for row in parts[part](given)]
    print("\n| attack | tried | not as it should be |\n| --- | ---: | ---: |")
    for name, tried, wrong in rows:
        print(f"| {name} | {tried:,} | {wrong} |")
    return int(any(wrong for _, _, wrong in rows))


if __name__ == "__main__":
    sys.exit(main())
