"""Levels drawn at random, each of them solved before it is kept."""

from functools import lru_cache

import numpy as np

from hgpo_gym.envs.sokoban.rules import BOX, BOX_ON_GOAL, FLOOR, GOAL, PLAYER, PLAYER_ON_GOAL, WALL, Level
from hgpo_gym.envs.sokoban.solver import Solver

DRAWS_IN_VAIN = 5_000
_STILL = str.maketrans({BOX: FLOOR, PLAYER: FLOOR, BOX_ON_GOAL: GOAL, PLAYER_ON_GOAL: GOAL})


@lru_cache(maxsize=16)
def generate_levels(
    *, levels: int, size: int, boxes: int, inner_walls: int, min_moves: int, seed: int
) -> tuple[str, ...]:
    """Different levels, as `Level.parse` reads them, none of them another one turned or mirrored.

    Args:
        levels: how many.
        size: rows and columns, the walls around included.
        boxes: boxes, and goals.
        inner_walls: wall cells inside.
        min_moves: the shortest solution has at least as many moves.
        seed: of the draws.

    Raises:
        ValueError: such levels cannot be found.
    """
    generator = np.random.default_rng(seed)
    kept: dict[str, str] = {}
    in_vain = 0
    while len(kept) < levels:
        text = _draw(generator, size, boxes, inner_walls)
        kind = canonical(text)
        plan = None if kind in kept else _solution(text)
        if plan is None or len(plan) < min_moves:
            in_vain += 1
            if in_vain == DRAWS_IN_VAIN:
                raise ValueError(
                    f"levels={levels}: found {len(kept)} with size={size}, boxes={boxes}, inner_walls={inner_walls}, "
                    f"min_moves={min_moves}. Ask for fewer, for larger ones, or for less of the others."
                )
            continue
        kept[kind], in_vain = text, 0
    return tuple(kept.values())


def _draw(generator: np.random.Generator, size: int, boxes: int, inner_walls: int) -> str:
    inside = [WALL] * inner_walls + [BOX, GOAL] * boxes + [PLAYER]
    inside += [FLOOR] * ((size - 2) ** 2 - len(inside))
    cells = [inside[index] for index in generator.permutation(len(inside))]
    rows = ["".join(cells[start : start + size - 2]) for start in range(0, len(cells), size - 2)]
    return "/".join([WALL * size, *(f"{WALL}{row}{WALL}" for row in rows), WALL * size])


def _solution(text: str) -> tuple[str, ...] | None:
    level = Level.parse(text)
    return Solver(level).plan(level.start)


def canonical(text: str) -> str:
    """The same text for a level and for all that it becomes by turning and mirroring."""
    rows = text.split("/")
    forms = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]  # a quarter turn
        forms += ["/".join(rows), "/".join(row[::-1] for row in rows)]
    return min(forms)


def map_of(text: str) -> str:
    """What play does not change of a level, walls and goals: the same text for all levels that have them, turned or
    mirrored."""
    return canonical(text.translate(_STILL))
