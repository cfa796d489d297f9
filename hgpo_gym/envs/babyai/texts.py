"""Descriptions of what the agent sees, to the letter those of BabyAI-Text (Carta et al., 2023) and of BALROG
(Paglieri et al., 2025)."""

from functools import lru_cache
from typing import Literal

from minigrid.core.world_object import Door, WorldObj
from minigrid.minigrid_env import MiniGridEnv

Style = Literal["babyai_text", "balrog"]

SIZE = 7
"""Columns and rows of the view. The agent stands in the middle of the last row and looks to the first."""
COLUMN, ROW = SIZE // 2, SIZE - 1
FORWARD = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""One cell ahead, by the direction that the agent looks in."""
LINES = {
    "forward": [(COLUMN, ROW - steps) for steps in range(1, SIZE)],
    "left": [(COLUMN - steps, ROW) for steps in range(1, COLUMN + 1)],
    "right": [(COLUMN + steps, ROW) for steps in range(1, COLUMN + 1)],
}
"""Cells of the view straight ahead and to both sides, the nearest first."""


def visible_objects(level: MiniGridEnv) -> dict[tuple[int, int], WorldObj | None]:
    """Return the content of each visible cell by its column and row in the view.

    Light passes from row to row, away from the agent: from each visible cell that is no wall and no closed door to the
    cells beside it, the one before it, and the one diagonally before it on the side that the light moves to.
    """
    grid, width = level.grid.grid, level.grid.width
    x, y = map(int, level.agent_pos)
    ahead_x, ahead_y = FORWARD[level.agent_dir]
    ahead, right = ahead_x + width * ahead_y, width * ahead_x - ahead_y
    seen: dict[tuple[int, int], WorldObj | None] = {}
    visible = [column == COLUMN for column in range(SIZE)]
    # A visible cell lies beside one that is neither wall nor outside, so that none is outside of the grid.
    first = x + width * y - COLUMN * right
    for row in range(ROW, -1, -1):
        before = [False] * SIZE
        for columns, step in ((range(SIZE - 1), 1), (range(SIZE - 1, 0, -1), -1)):
            for column in columns:
                if visible[column]:
                    cell = grid[first + column * right]
                    if cell is None or cell.see_behind():
                        visible[column + step] = before[column] = before[column + step] = True
        for column in range(SIZE):
            if visible[column]:
                seen[column, row] = grid[first + column * right]
        visible, first = before, first + ahead
    return seen


def describe(level: MiniGridEnv) -> list[str]:
    """Return the sentences of BabyAI-Text: what is carried, walls straight ahead and to both sides, then all other
    things by column and row of the view."""
    seen = visible_objects(level)
    carrying = level.carrying
    sentences = [f"You carry a {carrying.color} {carrying.type}"] if carrying else []
    for way, line in LINES.items():
        for distance, cell in enumerate(line, start=1):
            if (obj := seen.get(cell)) is not None:
                if obj.type == "wall":
                    sentences.append(f"You see a wall {_steps(distance, way)}")
                break
    things = [(cell, obj) for cell, obj in seen.items() if obj and obj.type != "wall" and cell != (COLUMN, ROW)]
    things.sort(key=lambda place: place[0])
    return sentences + [_sentence(name(obj), *cell) for cell, obj in things]


def things_by_direction(level: MiniGridEnv) -> dict[str, str]:
    """Return the things seen to the left, ahead and to the right, the nearest first, by the action towards them.

    A thing is ahead if it is at least as far ahead as to the side. The cell in front comes first, also if it is empty.
    Other walls are left out.
    """
    found: dict[str, list[tuple[int, str]]] = {"turn left": [], "go forward": [(1, "nothing")], "turn right": []}
    for (column, row), obj in visible_objects(level).items():
        sideways, ahead = column - COLUMN, ROW - row
        if (sideways, ahead) == (0, 1) and obj:
            found["go forward"][0] = 1, name(obj)
        elif obj and obj.type != "wall" and (sideways or ahead):
            action = "go forward" if ahead >= abs(sideways) else "turn left" if sideways < 0 else "turn right"
            found[action].append((abs(sideways) + ahead, name(obj)))
    return {
        action: ", ".join(dict.fromkeys(obj for _, obj in sorted(things))) or "nothing"
        for action, things in found.items()
    }


def write(sentences: list[str], style: Style) -> str:
    """Join sentences as BabyAI-Text does, or as BALROG does."""
    if style == "balrog":
        return "\n".join(sentence.removeprefix("You see ") for sentence in sentences)
    return ", ".join(sentences)


def name(obj: WorldObj) -> str:
    """Return colour and type of a thing, and before them the state of a door; `wall` for a wall."""
    if obj.type == "wall":
        return "wall"
    if not isinstance(obj, Door):
        return f"{obj.color} {obj.type}"
    state = "open" if obj.is_open else "locked" if obj.is_locked else "closed"
    return f"{state} {obj.color} {obj.type}"


@lru_cache(maxsize=1 << 12)
def _sentence(obj: str, column: int, row: int) -> str:
    sideways, ahead = column - COLUMN, ROW - row
    parts = [_steps(abs(sideways), "right" if sideways > 0 else "left")] if sideways else []
    parts += [_steps(ahead, "forward")] if ahead else []
    # "a open", as in the original.
    return f"You see a {obj} {' and '.join(parts)}"


def _steps(number: int, way: str) -> str:
    return f"{number} step{'s' if number > 1 else ''} {way}"
