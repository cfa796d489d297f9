"""An environment that fails; by itself, so that worker processes are soon there."""

import os
import signal
from pathlib import Path

from hgpo_gym.envs import register
from hgpo_gym.envs.signpost_maze import SignpostMazeEnv

BREAKING = "hgpo_gym_tests/Breaking-v0"


class Breaking(SignpostMazeEnv):
    """The maze, which at some places raises an error, stops its process, or ends it.

    Args:
        folder: remembers what happened once.
        broken: tasks that cannot begin; `*` is all of them.
        unlucky: chance of an error in the second step, drawn at the reset; with `how` it happens.
        once: the first second step of each task fails, and no other.
        how: `raise`, `stop` or `die`.
    """

    def __init__(
        self, folder: str, broken: str = "", unlucky: float = 0.0, once: bool = False, how: str = "raise", **o
    ):
        super().__init__(**o)
        self.folder, self.broken, self.unlucky, self.once, self.how = Path(folder), broken, unlucky, once, how

    def begin_episode(self, task_id):
        if task_id == self.broken or self.broken == "*":
            self.fail()
        self.moves = 0
        return super().begin_episode(task_id)

    def take_action(self, action):
        self.moves += 1
        if self.moves == 2:
            mark = self.folder / self.task_id
            if self.once and not mark.exists():
                mark.touch()
                self.fail()
            if self.unlucky and self.np_random.random() < self.unlucky:
                self.fail()
        return super().take_action(action)

    def fail(self):
        if self.how == "raise":
            raise ConnectionResetError("the backend hung up")
        os.kill(os.getpid(), signal.SIGSTOP if self.how == "stop" else signal.SIGKILL)


register(BREAKING, Breaking, max_episode_steps=8, description="for tests")
