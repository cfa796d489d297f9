"""How far an ALFWorld task has come: what ALFRED calls its subgoals, told from the texts of the game.

In order: the thing is taken; it is cleaned, heated or cooled, if that is asked for; of two, the first is put down and
another one taken; the task is done, which may come early where some of it was so from the start. A milestone that was
reached stays so, whatever becomes of the thing afterwards.
"""

import re
from typing import NamedTuple

from hgpo_gym.envs.alfworld.experts.explorer import HouseholdTask, read_task

TAKE, TREAT, PUT, DONE = "take", "treat", "put", "done"


class Milestones(NamedTuple):
    """What a task asks for, and how many of its milestones were reached. Immutable.

    Attributes:
        errand: the task.
        order: its milestones.
        reached: how many of them.
        put: of two, the name of the one that was put down first.
    """

    errand: HouseholdTask
    order: tuple[str, ...]
    reached: int = 0
    put: str = ""

    @classmethod
    def of(cls, sentence: str) -> "Milestones":
        """At the start of the task that a sentence asks for. Raises ValueError where it is none of ALFWorld's."""
        errand = read_task(sentence)
        if errand.two:
            return cls(errand, (TAKE, PUT, TAKE, DONE))
        return cls(errand, (TAKE, TREAT, DONE) if errand.treatment else (TAKE, DONE))

    def after(self, feedback: str, won: bool) -> "Milestones":
        """After a command that was answered so: with the next milestone, or the last, if that was reached."""
        if won:
            return self._replace(reached=len(self.order))
        event, thing = self._event(feedback)
        if event != self.order[self.reached] or (event == TAKE and thing == self.put):
            return self
        return self._replace(reached=self.reached + 1, put=thing if event == PUT else self.put)

    def _event(self, feedback: str) -> tuple[str, str]:
        """What has happened, and to which thing; nothing to none, where it was something else."""
        errand = self.errand
        events = {
            TAKE: rf"You pick up the ({errand.thing} \d+) from ",
            TREAT: rf"You {errand.treatment} the ({errand.thing} \d+) ",
            PUT: rf"You move the ({errand.thing} \d+) to the {errand.target} \d+",
        }
        found = ((event, re.match(text, feedback)) for event, text in events.items())
        return next(((event, match[1]) for event, match in found if match), ("", ""))
