"""Progress in an ALFWorld task: ALFRED's subgoals, read from the texts of the game.

The order is: the agent takes the object; it cleans, heats or cools it, if the task asks for that; for a task of two
objects, it puts down the first and takes another one; the task is done. The task may be done early if the start meets a
part of it. A milestone stays reached, even if the object is moved afterwards.
"""

import re
from typing import NamedTuple

from hgpo_gym.envs.alfworld.experts.explorer import HouseholdTask, read_task

TAKE, TREAT, PUT, DONE = "take", "treat", "put", "done"


class Milestones(NamedTuple):
    """Milestones of a task and the number reached. Immutable.

    Attributes:
        task: the task.
        order: its milestones.
        reached: how many of them.
        put: of two, the name of the one that was put down first.
    """

    task: HouseholdTask
    order: tuple[str, ...]
    reached: int = 0
    put: str = ""

    @classmethod
    def of(cls, sentence: str) -> "Milestones":
        """Return the milestones of a task sentence, none reached. Raises ValueError if the sentence is none of
        ALFWorld's."""
        task = read_task(sentence)
        if task.two:
            return cls(task, (TAKE, PUT, TAKE, DONE))
        return cls(task, (TAKE, TREAT, DONE) if task.treatment else (TAKE, DONE))

    def after(self, feedback: str, won: bool) -> "Milestones":
        """Return the milestones after an answer to a command: with the next one reached, or the last, if the answer
        shows it."""
        if won:
            return self._replace(reached=len(self.order))
        event, thing = self._event(feedback)
        if event != self.order[self.reached] or (event == TAKE and thing == self.put):
            return self
        return self._replace(reached=self.reached + 1, put=thing if event == PUT else self.put)

    def _event(self, feedback: str) -> tuple[str, str]:
        """Return the event and its object from an answer; two empty texts for any other answer."""
        task = self.task
        events = {
            TAKE: rf"You pick up the ({task.thing} \d+) from ",
            TREAT: rf"You {task.treatment} the ({task.thing} \d+) ",
            PUT: rf"You move the ({task.thing} \d+) to the {task.target} \d+",
        }
        found = ((event, re.match(text, feedback)) for event, text in events.items())
        return next(((event, match[1]) for event, match in found if match), ("", ""))
