"""Generate random levels. Each level is solved before it is accepted."""

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
    """Return different levels in the format of `Level.parse`. None is another one turned or mirrored.

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
    found: dict[str, str] = {}
    rejected_draws = 0
    while len(found) < levels:
        text = _draw(generator, size, boxes, inner_walls)
        canonical_text = canonical(text)
        plan = None if canonical_text in found else _solution(text)
        if plan is None or len(plan) < min_moves:
            rejected_draws += 1
            if rejected_draws == DRAWS_IN_VAIN:
                raise ValueError(
                    f"levels={levels}: found {len(found)} with size={size}, boxes={boxes}, inner_walls={inner_walls}, "
                    f"min_moves={min_moves}. Ask for fewer, for larger ones, or for less of the others."
                )
            continue
        found[canonical_text], rejected_draws = text, 0
    return tuple(found.values())


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
    """Return the same text for a level and all its rotations and reflections."""
    rows = text.split("/")
    forms = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]  # a quarter turn
        forms += ["/".join(rows), "/".join(row[::-1] for row in rows)]
    return min(forms)


def map_of(text: str) -> str:
    """Return the constant part of a level, walls and goals: the same text for all levels that share it, turned or
    mirrored."""
    return canonical(text.translate(_STILL))
