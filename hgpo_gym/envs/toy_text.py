"""Gymnasium's FrozenLake and Taxi in words: two examples of `TextFromDiscrete`."""

from collections.abc import Callable
from typing import Annotated, Any

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.envs.toy_text.taxi import TaxiEnv

from hgpo_gym.envs.from_discrete import DiscreteTask, TextFromDiscrete
from hgpo_gym.envs.splits import Split, check_number_of_tasks, hashed, in_split
from hgpo_gym.option_checks import Range

WAYS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Offsets of FrozenLake's actions in their order: row and column."""
TILES = {"S": "ice", "F": "ice", "H": "a hole", "G": "the goal"}
TAXI_ACTIONS = ("south", "north", "east", "west", "pick up", "drop off")
STANDS = {"red": (0, 0), "green": (0, 4), "yellow": (4, 0), "blue": (4, 3)}
"""Taxi's stands in their order: row and column."""
PASSENGER = "The passenger"


class FrozenLakeText(TextFromDiscrete):
    """`hgpo_gym/FrozenLake-v0`: reward 1 on the goal, 0 in a hole, which ends the episode too.

    A task id is the map, its rows joined by `/`.

    Args:
        split: `test` (a third of the maps, by a hash), `train` (the others) or `all`.
        size: rows and columns, 2 to 100.
        frozen: the share of tiles that are no holes, 0.3 or more: with fewer, hardly a map has a way.
        slippery: two moves of three go to the left or the right of where they should.
        maps: seeds that maps are drawn from; the same map counts once.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a split that does not exist, or an empty one; a value out of range.
    """

    def __init__(
        self,
        *,
        split: Split = "train",
        size: Annotated[int, Range(2, 100)] = 4,
        frozen: Annotated[float, Range(0.3, 1)] = 0.75,
        slippery: bool = False,
        maps: int = 100,
        render_mode: str | None = None,
    ):
        check_number_of_tasks(f"maps={maps}", maps)
        drawn = [tuple(map(str, generate_random_map(size, frozen, seed))) for seed in range(maps)]
        super().__init__(
            "FrozenLake-v1",
            actions=tuple(WAYS),
            describe=describe_lake,
            task="Walk over the ice to the goal; beware of the holes.",
            tasks=_part(
                {"/".join(rows): DiscreteTask({"desc": list(rows), "is_slippery": slippery}) for rows in drawn}, split
            ),
            render_mode=render_mode,
        )
        self.split = split


def describe_lake(position: int, env: gymnasium.Env[Any, Any]) -> str:
    """Describe the agent's position, the goal, and the adjacent tiles."""
    tiles = env.desc.astype(str)  # type: ignore[attr-defined]
    rows, columns = tiles.shape
    row, column = divmod(int(position), columns)
    if tiles[row, column] in "GH":
        return "You have reached the goal." if tiles[row, column] == "G" else "You have fallen into a hole."
    around = []
    for way, (down, right) in WAYS.items():
        inside = 0 <= row + down < rows and 0 <= column + right < columns
        around.append(f"{way} {TILES[tiles[row + down, column + right]] if inside else 'the shore'}")
    return f"You are in row {row + 1}, column {column + 1} of {rows} by {columns}: {', '.join(around)}."


class TaxiText(TextFromDiscrete):
    """`hgpo_gym/Taxi-v0`: reward 20 for the passenger at the right stand, -1 for every other step that Taxi takes; an
    action that is refused is none.

    Args:
        split: `test` (the starts of about a third of the passenger's ways, from stand to stand, by a hash), `train`
            (the others) or `all`.
        starts: seeds that starts are drawn from; the same start counts once, and there are 300.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a split that does not exist, or an empty one.
    """

    def __init__(self, *, split: Split = "train", starts: int = 300, render_mode: str | None = None):
        check_number_of_tasks(f"starts={starts}", starts)
        taxi = TaxiEnv()
        seeds = {describe_taxi(taxi.reset(seed=seed)[0], taxi): seed for seed in reversed(range(starts))}
        super().__init__(
            TaxiEnv,  # the class: releases of Gymnasium differ in its id
            actions=TAXI_ACTIONS,
            describe=describe_taxi,
            task="Drive to the passenger, pick them up, and drop them off at the stand where they want to go.",
            # By what driving does not change: from one start to the next the taxi comes to every row and column.
            tasks=_part(
                {start: DiscreteTask(seed=seeds[start]) for start in sorted(seeds)},
                split,
                lambda start: start[start.index(PASSENGER) :],
            ),
            render_mode=render_mode,
        )
        self.split = split


def describe_taxi(state: int, env: gymnasium.Env[Any, Any]) -> str:
    """Describe the positions of the taxi and the passenger, and the passenger's destination."""
    row, column, passenger, destination = env.decode(int(state))  # type: ignore[attr-defined]
    stands = [f"the {name} stand (row {row + 1}, column {column + 1})" for name, (row, column) in STANDS.items()]
    where = f"waits at {stands[passenger]}" if passenger < len(stands) else "is in the taxi"
    return (
        f"The taxi is in row {row + 1}, column {column + 1}. {PASSENGER} {where} and wants to go to "
        f"{stands[destination]}."
    )


def _part(
    tasks: dict[str, DiscreteTask], split: Split, held_out: Callable[[str], str] = str
) -> dict[str, DiscreteTask]:
    """Return the tasks of a split, by a hash of the part of a task id that no two splits may share."""
    return {task_id: task for task_id, task in tasks.items() if in_split(split, hashed(held_out(task_id)))}
