"""An environment that is somewhere else: the maze, whose every step waits, without using the processor.

python -m benchmarks.overlap 'plugins=[benchmarks.pausing]' env.id=hgpo_gym_benchmarks/Pausing-v0 +env.pause=0.002
"""

import time
from typing import Any

from hgpo_gym.envs import register
from hgpo_gym.envs.signpost_maze import SignpostMazeEnv


class Pausing(SignpostMazeEnv):
    """The maze.

    Args:
        pause: seconds that a step waits.
        options: of the maze.
    """

    def __init__(self, pause: float, **options: Any):
        super().__init__(**options)
        self._pause = pause

    def take_action(self, action: str) -> Any:
        """See `TextEnv`."""
        time.sleep(self._pause)
        return super().take_action(action)


register("hgpo_gym_benchmarks/Pausing-v0", Pausing, max_episode_steps=24, description="for benchmarks")
