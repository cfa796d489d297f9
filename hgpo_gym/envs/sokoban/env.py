"""SokobanEnv: the Gymnasium environment."""

import math
from functools import lru_cache
from typing import Annotated, Any, Literal

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.sokoban.generator import generate_levels, map_of
from hgpo_gym.envs.sokoban.rules import LEGEND, Level, State
from hgpo_gym.envs.sokoban.solver import Solver
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, check_number_of_tasks, hashed, in_split
from hgpo_gym.option_checks import AtLeastOne, Range

TASK = f"Push every box onto a goal. You cannot pull. The map: {LEGEND}."

HeldOut = Literal["maps", "levels"]

_solver = lru_cache(maxsize=1_000)(Solver)


class SokobanEnv(TextEnv):
    """`hgpo_gym/Sokoban-v0`: reward 10 when every box is on a goal, else 0.

    A task id is the level itself, its rows joined by `/`. An episode in which a box is stuck goes on to its step limit.

    Args:
        split: `test` (about a third of the levels, by a hash), `train` (the others) or `all`.
        held_out: what the hash is of. `maps`: walls and goals, which play does not change, so that no level of one
            split is, turned or mirrored, what a level of the other can become. `levels`: the whole level, so that most
            of `test` are other positions of maps that are trained on.
        size: rows and columns, the walls around included, 3 to 100.
        boxes: boxes, and goals.
        inner_walls: wall cells inside.
        min_moves: the shortest solution has at least as many moves.
        levels: how many there are, both splits together.
        levels_seed: draws them.
        expert: put the first move of a shortest solution into `info["expert_action"]`; empty where there is none.
        milestones: put into `info["milestone"]` whether the action brought the boxes nearer to the goals, by the pushes
            that are left at least, than they had been in the episode.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a value out of range, or levels that cannot be found.
    """

    def __init__(
        self,
        *,
        split: Split = "train",
        held_out: HeldOut = "maps",
        size: Annotated[int, Range(3, 100)] = 6,
        boxes: AtLeastOne = 1,
        inner_walls: Annotated[int, Range(0)] = 2,
        min_moves: AtLeastOne = 4,
        levels: AtLeastOne = 300,
        levels_seed: Annotated[int, Range(0)] = 0,
        expert: bool = False,
        milestones: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        check_number_of_tasks(f"levels={levels}", levels)
        if (room := (size - 2) ** 2) < inner_walls + 2 * boxes + 1:
            raise ValueError(
                f"size={size}: {room} cells inside are too few for the walls, boxes, goals and the player."
            )
        self.split = split
        self._expert = expert
        self._milestones = milestones
        self.task_ids = tuple(
            level
            for level in generate_levels(
                levels=levels,
                size=size,
                boxes=boxes,
                inner_walls=inner_walls,
                min_moves=min_moves,
                seed=levels_seed,
            )
            if in_split(split, hashed(map_of(level) if held_out == "maps" else level))
        )

    def begin_episode(self, task_id: str) -> Turn:
        self._level = Level.parse(task_id)
        self._state = self._level.start
        self._nearest = self._pushes_left() if self._milestones else 0
        return self._turn()

    def take_action(self, action: str) -> Turn:
        after = self._level.moves(self._state).get(action)
        if after is None:
            return self._turn(prefix="Nothing moves that way.\n", action_valid=False)
        self._state = after
        before = self._nearest
        if self._milestones:
            self._nearest = min(before, self._pushes_left())
        return self._turn(milestone=self._nearest < before)

    def save_state(self) -> tuple[Level, State, float]:
        return self._level, self._state, self._nearest

    def load_state(self, state: tuple[Level, State, float]) -> None:
        self._level, self._state, self._nearest = state

    def _pushes_left(self) -> float:
        left = _solver(self._level).pushes_left(self._state)
        return math.inf if left is None else left

    def _turn(self, prefix: str = "", action_valid: bool = True, milestone: bool = False) -> Turn:
        won = self._level.is_solved(self._state)
        extras: dict[str, Any] = {"expert_action": self._expert_action()} if self._expert else {}
        if self._milestones:
            extras["milestone"] = milestone
        return Turn(
            # Cells apart, so that every tokenizer sees each of them.
            observation=prefix + "\n".join(" ".join(row) for row in self._level.rows(self._state)),
            task=TASK,
            admissible_actions=tuple(self._level.moves(self._state)),
            reward=SUCCESS_REWARD if won else 0.0,
            terminated=won,
            won=won,
            action_valid=action_valid,
            extras=extras,
        )

    def _expert_action(self) -> str:
        plan = _solver(self._level).plan(self._state)
        return plan[0] if plan else ""
