"""Plans in responses: `<switch>` keeps or changes the subgoal, `<subgoal>` names it, and the action follows.

The form is HiPER's (arXiv:2602.16165). Every response says KEEP or SWITCH, and repeats or names the subgoal. A prompt
template with `subgoals` asks for this form.
"""

from typing import NamedTuple

KEEP, SWITCH = "KEEP", "SWITCH"
_TAGS = ("<switch>", "</switch>", "<subgoal>", "</subgoal>")


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
