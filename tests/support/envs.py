"""Environments of tests for worker processes, which import this module: it imports nothing of training."""

import time
from pathlib import Path

from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, register
from hgpo_gym.memory import ContextWrapper

SECONDS = 60
"""After which `Meeting` gives up waiting."""


class Dice(TextEnv):
    """Three rolls of a die, in which chance alone decides; the sum is the reward."""

    task_ids = ("one", "two")

    def begin_episode(self, task_id):
        self.rolls = []
        return Turn(f"{task_id}: roll.", task="Roll.", admissible_actions=("left hand", "right hand"))

    def take_action(self, action):
        self.rolls.append(int(self.np_random.integers(1, 7)))
        over = len(self.rolls) == 3
        reward = float(sum(self.rolls)) if over else 0.0
        seen = " ".join(map(str, self.rolls))
        return Turn(
            seen, admissible_actions=("left hand", "right hand"), reward=reward, terminated=over, won=reward > 9
        )


register("hgpo_gym_tests/TreeDice-v0", Dice, max_episode_steps=5, description="for tests")


def dice(num_tasks=2, group_size=8, workers=0):
    vector = TextVectorEnv("hgpo_gym_tests/TreeDice-v0", num_tasks, group_size, workers=workers)
    return ContextWrapper(vector, "bare", window=2, history_length=2)


class Meeting(TextEnv):
    """Whoever has the task `wait` answers at the first step only when the others have ended their episodes."""

    task_ids = ("go", "wait")

    def __init__(self, folder=None):
        super().__init__()
        self.folder = Path(folder)

    def begin_episode(self, task_id):
        self.steps = 0
        return Turn("Here.", task=task_id, admissible_actions=("on",))

    def take_action(self, action):
        self.steps += 1
        gone = self.folder / "gone"
        if self.task_id == "wait":
            deadline = time.monotonic() + SECONDS
            while not gone.exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("The others wait for this one.")
                time.sleep(0.01)
        elif self.steps == 3:
            gone.touch()
        return Turn("Here.", admissible_actions=("on",), terminated=self.steps == 3)


MEETING = "hgpo_gym_tests/Meeting-v0"
register(MEETING, Meeting, max_episode_steps=5, description="for tests")


GAME = """
from hgpo_gym.envs import TextEnv, Turn, register

class Shout(TextEnv):
    task_ids = ("cat", "dog")

    def begin_episode(self, task_id):
        return Turn("Say {word}.", task="Speak.", admissible_actions=("cat", "dog"))

    def take_action(self, action):
        return Turn("Done.", terminated=True, won=True)

register("warm_start_tests/{name}-v0", Shout, max_episode_steps=2, description="for tests")
"""
