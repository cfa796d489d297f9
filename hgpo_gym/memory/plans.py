"""Plans in responses: `<switch>` keeps or changes the subgoal, `<subgoal>` names it, and the action follows.

The form is HiPER's (arXiv:2602.16165). Every response says KEEP or SWITCH, and repeats or names the subgoal. A prompt
template with `subgoals` asks for this form.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from hgpo_gym.memory.response_prefix import KEEP_PROBABILITY, PrefixReading, ResponsePrefix

KEEP, SWITCH = "KEEP", "SWITCH"
_TAGS = ("<switch>", "</switch>", "<subgoal>", "</subgoal>")


class PlanPrefix(ResponsePrefix):
    """A plan. It carries the current subgoal, which is empty before the first plan.

    Args:
        subgoals: the subgoals to choose among. If empty, the action is the subgoal.
        line: the text above the prompt; may use {subgoal}.
    """

    columns = MappingProxyType({"boundary": np.bool_, "switch_end": np.int64, "plan_end": np.int64})

    def __init__(self, subgoals: Sequence[str], line: str):
        self._subgoals, self._line = subgoals, line
        self.literal_text = (write_plan("", switches=True),)

    def show(self, prompt: str, carried: str) -> str:
        return self._line.format(subgoal=carried or "none") + prompt

    def write(self, action: str, carried: str) -> list[str]:
        keeping = [write_plan(carried, switches=False)] if carried else []
        return keeping + [write_plan(new, switches=True) for new in self._subgoals or [action]]

    def sample(
        self,
        action: str,
        carried: str,
        generator: np.random.Generator,
        *,
        observation: str = "",  # noqa: ARG002 - of ResponsePrefix
        expert_notes: str | None = None,  # noqa: ARG002 - of ResponsePrefix
    ) -> tuple[str, str]:
        if carried and generator.random() < KEEP_PROBABILITY:
            return write_plan(carried, switches=False), carried
        names = self._subgoals or [action]
        new = names[int(generator.integers(len(names)))]
        return write_plan(new, switches=True), new

    def read(self, response: str, carried: str, *, alone: bool = False) -> PrefixReading:  # noqa: ARG002 - of ResponsePrefix
        plan = read_plan(response, carried)
        columns = dict(zip(self.columns, (plan.switches, plan.switch_end, plan.end), strict=True))
        return PrefixReading(plan.subgoal, plan.in_form, columns)


class Plan(NamedTuple):
    """The plan in a response.

    Attributes:
        subgoal: the current one; empty before the first.
        switches: the subgoal begins here.
        switch_end: the number of characters up to the end of `<switch>`.
        end: the number of characters up to the end of `<subgoal>`; the action follows. Both are 0 if not in form.
        in_form: the tags are in order, with KEEP or SWITCH in the first pair and a text in the second.
    """

    subgoal: str
    switches: bool
    switch_end: int
    end: int
    in_form: bool


def write_plan(subgoal: str, *, switches: bool) -> str:
    """Return the plan that begins a response, before its action."""
    return f"<switch>{SWITCH if switches else KEEP}</switch>\n<subgoal>{subgoal}</subgoal>\n"


def read_plan(response: str, current: str) -> Plan:
    """Read the plan of a response, in linear time.

    A subgoal begins if the response says SWITCH, or if it names the first subgoal. A response that says KEEP, or that
    is not in form, keeps the `current` subgoal, whatever text it repeats.
    """
    spans, start = [], 0
    for tag in _TAGS:
        position = response.find(tag, start)
        if position < 0:
            return Plan(current, switches=False, switch_end=0, end=0, in_form=False)
        spans.append((position, start := position + len(tag)))
    decision = response[spans[0][1] : spans[1][0]].strip()
    name = response[spans[2][1] : spans[3][0]].strip()
    if decision not in (KEEP, SWITCH) or not name:
        return Plan(current, switches=False, switch_end=0, end=0, in_form=False)
    switches = decision == SWITCH or not current
    return Plan(name if switches else current, switches, spans[1][1], spans[3][1], in_form=True)
