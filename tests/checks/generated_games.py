"""Generated ALFWorld games beside ALFWorld's: how large and full the rooms are, how long the tasks take.

Objects are those that an agent can come upon; steps are those of a shortest solution.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from hgpo_gym.envs.alfworld.generation.games import GeneratedGame
from hgpo_gym.envs.alfworld.native import CompiledGame, compile_game, shortest_plan

KINDS = {0: "kitchen", 2: "living", 3: "bedroom", 4: "bathroom"}
"""ALFRED's floor plans by their hundreds."""


class Sample(NamedTuple):
    """A game: the kind of room, the task type, and what the native engine plays on."""

    kind: str
    task_type: str
    game: CompiledGame


def released_sample(game_file: Path) -> Sample:
    """A game of ALFWorld."""
    trajectory = json.loads(game_file.with_name("traj_data.json").read_text())
    floor_plan = int(trajectory["scene"]["floor_plan"].removeprefix("FloorPlan"))
    return Sample(KINDS[floor_plan // 100], trajectory["task_type"], compile_game(json.loads(game_file.read_text())))


def generated_sample(game: GeneratedGame) -> Sample:
    """A generated game."""
    return Sample(game.trajectory["scene"]["floor_plan"], game.task_type, compile_game(game.game))


def receptacles(game: CompiledGame) -> int:
    """Return the number of receptacles."""
    return len(game.receptacles)


def reachable(game: CompiledGame) -> frozenset[int]:
    """The objects that an agent can come upon: those in or on a receptacle."""
    return frozenset().union(*game.initial.contents)


def objects(game: CompiledGame) -> int:
    """Return the number of objects that an agent can find."""
    return len(reachable(game))


def steps(game: CompiledGame) -> int:
    """Return the number of commands of a solution. Raises ValueError if there is none."""
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
