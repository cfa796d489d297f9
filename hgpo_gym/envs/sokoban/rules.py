"""Rules of Sokoban as pure functions on a hashable state."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

WALL, FLOOR, GOAL, BOX, PLAYER, BOX_ON_GOAL, PLAYER_ON_GOAL = "#-.$@*+"
ACTIONS = ("up", "down", "left", "right")
LEGEND = "# wall, - floor, @ you, $ box, . goal, * box on a goal, + you on a goal"


class State(NamedTuple):
    """Cells of the player and the boxes; a cell is row * width + column."""

    player: int
    boxes: frozenset[int]


@dataclass(frozen=True)
class Level:
    """Level of Sokoban.

    Attributes:
        width: columns.
        size: cells.
        walls: cells; they enclose the others.
        goals: cells, as many as boxes.
        start: the state that an episode begins in.
    """

    width: int
    size: int
    walls: frozenset[int]
    goals: frozenset[int]
    start: State

    @classmethod
    def parse(cls, text: str) -> "Level":
        """Return the level of a text: rows joined by `/`, in the signs of `LEGEND`.

        Raises:
            ValueError: rows of different length, other than one player, not as many boxes as goals.
        """
        rows = text.split("/")
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"Level {text!r}: its rows differ in length.")
        cells = "".join(rows)
        players = _cells(cells, PLAYER, PLAYER_ON_GOAL)
        if len(players) != 1:
            raise ValueError(f"Level {text!r}: {len(players)} players, not one.")
        boxes, goals = _cells(cells, BOX, BOX_ON_GOAL), _cells(cells, GOAL, BOX_ON_GOAL, PLAYER_ON_GOAL)
        if len(boxes) != len(goals):
            raise ValueError(f"Level {text!r}: {len(boxes)} boxes for {len(goals)} goals.")
        return cls(len(rows[0]), len(cells), _cells(cells, WALL), goals, State(min(players), boxes))

    @cached_property
    def steps(self) -> dict[str, int]:
        """Offset of each action, added to the player's cell."""
        return dict(zip(ACTIONS, (-self.width, self.width, -1, 1), strict=True))

    def moves(self, state: State) -> dict[str, State]:
        """Return the actions that change something, with the next states. None changes a solved state."""
        if self.is_solved(state):
            return {}
        found = {action: self._move(state, step) for action, step in self.steps.items()}
        return {action: after for action, after in found.items() if after is not None}

    def _move(self, state: State, step: int) -> State | None:
        target = state.player + step
        if target in self.walls:
            return None
        if target not in state.boxes:
            return State(target, state.boxes)
        behind = target + step
        if behind in self.walls or behind in state.boxes:
            return None
        return State(target, state.boxes - {target} | {behind})

    def is_solved(self, state: State) -> bool:
        return state.boxes == self.goals

    def rows(self, state: State) -> list[str]:
        """Return the map, one string per row."""
        signs = "".join(self._sign(cell, state) for cell in range(self.size))
        return [signs[start : start + self.width] for start in range(0, self.size, self.width)]

    def _sign(self, cell: int, state: State) -> str:
        if cell in self.walls:
            return WALL
        on_goal = cell in self.goals
        if cell == state.player:
            return PLAYER_ON_GOAL if on_goal else PLAYER
        if cell in state.boxes:
            return BOX_ON_GOAL if on_goal else BOX
        return GOAL if on_goal else FLOOR


def _cells(cells: str, *signs: str) -> frozenset[int]:
    return frozenset(cell for cell, sign in enumerate(cells) if sign in signs)
