"""A maze to learn memory in: in the expert's episodes some signposts lie, so that imitation is right part of the time.

Models that imitate these episodes know the form of responses, write a colour into their notes and open the door that
the notes name. Which colour a signpost means, they know in part: the rest is left to reinforcement learning.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import hgpo_gym as hg
from hgpo_gym.envs.base import Turn
from hgpo_gym.envs.signpost_maze import SignpostMaze, SignpostMazeEnv
from hgpo_gym.option_checks import AtLeastOne, Range


@dataclass(frozen=True)
class LyingMaze(SignpostMaze):
    """A maze whose signposts show `shown`, while the right doors are those of `signs`."""

    shown: tuple[str, ...] = ()

    def _room(self, place: Any) -> str:
        maze = replace(self, signs=self.shown, shown=()) if self.shown else self
        return SignpostMaze._room(maze, place)


class LyingSignpost(SignpostMazeEnv):
    """SignpostMaze whose signposts lie where an expert plays, and only there.

    Args:
        lies: the probability that a signpost names a colour at random.
        sections, distance: see SignpostMaze.
    """

    def __init__(
        self,
        *,
        lies: Annotated[float, Range(0, 1)] = 0.6,
        sections: AtLeastOne = 2,
        distance: Annotated[int, Range(0)] = 2,
        expert: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(split="all", sections=sections, distance=distance, expert=expert, render_mode=render_mode)
        self._lies = lies if expert else 0.0

    def begin_episode(self, task_id: str) -> Turn:
        turn = super().begin_episode(task_id)
        if not self._lies:
            return turn
        shown = [
            str(self.np_random.choice(self._colours)) if self.np_random.random() < self._lies else sign
            for sign in self._maze.signs
        ]
        self._maze = LyingMaze(**vars(self._maze), shown=tuple(shown))
        return self._turn()


hg.register(
    "benchmarks/LyingSignpost-v0",
    LyingSignpost,
    max_episode_steps=12,
    description="SignpostMaze whose signposts lie to those who imitate.",
)
