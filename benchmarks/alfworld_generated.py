"""Generated ALFWorld games beside ALFWorld's own: how large and full the rooms are, how long the tasks take.

    python -m benchmarks.alfworld_generated ../shared/data/alfworld/json_2.1.1/valid_train

Objects are those that an agent can come upon; steps are those of a shortest solution.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from hgpo_gym.envs.alfworld.generation.games import GeneratedGame, generate_game
from hgpo_gym.envs.alfworld.native import CompiledGame, compile_game, shortest_plan

KINDS = {0: "kitchen", 2: "living", 3: "bedroom", 4: "bathroom"}
"""ALFRED's floor plans by their hundreds."""


class Sample(NamedTuple):
    """A game: the kind of room, the task type, and what the native engine plays on."""

    kind: str
    task_type: str
    game: CompiledGame


def released_sample(game_file: Path) -> Sample:
    """One of ALFWorld's own games."""
    trajectory = json.loads(game_file.with_name("traj_data.json").read_text())
    floor_plan = int(trajectory["scene"]["floor_plan"].removeprefix("FloorPlan"))
    return Sample(KINDS[floor_plan // 100], trajectory["task_type"], compile_game(json.loads(game_file.read_text())))


def generated_sample(game: GeneratedGame) -> Sample:
    """A generated game."""
    return Sample(game.trajectory["scene"]["floor_plan"], game.task_type, compile_game(game.game))


def receptacles(game: CompiledGame) -> int:
    """How many receptacles there are."""
    return len(game.receptacles)


def reachable(game: CompiledGame) -> frozenset[int]:
    """The objects that an agent can come upon: those in or on a receptacle."""
    return frozenset().union(*game.initial.contents)


def objects(game: CompiledGame) -> int:
    """How many objects an agent can come upon."""
    return len(reachable(game))


def steps(game: CompiledGame) -> int:
    """How many commands the task takes. Raises ValueError if it cannot be done."""
    plan = shortest_plan(game, game.initial)
    if plan is None:
        raise ValueError(f"There is no way to do the task {game.task!r}.")
    return len(plan)


def means(samples: list[Sample], by: str, measure: Callable[[CompiledGame], int]) -> dict[str, float]:
    """The mean of a measure, by `kind` or by `task_type`."""
    groups = defaultdict(list)
    for sample in samples:
        groups[getattr(sample, by)].append(measure(sample.game))
    return {name: mean(values) for name, values in sorted(groups.items())}


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
