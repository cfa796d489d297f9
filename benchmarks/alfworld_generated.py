"""Generated ALFWorld games beside ALFWorld's own: how large and full the rooms are, how long the tasks take.

    python -m benchmarks.alfworld_generated ../shared/data/alfworld/json_2.1.1/valid_train

Objects are those that an agent can come upon; steps are those of a shortest solution.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import mean

from hgpo_gym.envs.alfworld.generation.games import generate_game
from tests.checks.generated_games import generated_sample, means, objects, receptacles, released_sample, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="ALFWorld's own games are **/game.tw-pddl below it")
    parser.add_argument("--games", type=int, default=1000, help="how many games to generate (default 1000)")
    options = parser.parse_args()
    released = [released_sample(game_file) for game_file in sorted(options.folder.glob("**/game.tw-pddl"))]
    if not released:
        parser.error(f"no **/game.tw-pddl below {options.folder}")

    started = time.perf_counter()
    games = [generate_game(seed) for seed in range(options.games)]
    milliseconds = 1000 * (time.perf_counter() - started) / len(games)
    size = mean(len(json.dumps(game.game)) for game in games)
    print(f"{len(games)} games in {milliseconds:.1f} ms each, {size / 1000:.0f} kB each")

    made = [generated_sample(game) for game in games]
    for by, measure in (("kind", receptacles), ("kind", objects), ("task_type", steps)):
        expected, actual = means(released, by, measure), means(made, by, measure)
        for name in expected:
            print(f"{measure.__name__:12} {name:32} own {expected[name]:6.2f}   generated {actual[name]:6.2f}")


if __name__ == "__main__":
    main()
