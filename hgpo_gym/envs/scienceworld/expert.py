"""The simulator's solution of a task, in the words of the admissible actions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hgpo_gym.envs.scienceworld.actions import CONNECT, FREE, normalized, parse
from hgpo_gym.envs.scienceworld.game import References, SimulatorState


@dataclass(frozen=True)
class Expert:
    """Place on a gold path. A path is good only from the start of the episode.

    Attributes:
        path: the simulator's solution.
        done: how many of its actions were taken.
        lost: another action that takes time was taken.
    """

    path: tuple[str, ...]
    done: int = 0
    lost: bool = False

    @property
    def next_action(self) -> str:
        """The next action in the simulator's words; empty if there is none."""
        return "" if self.lost or self.done == len(self.path) else self.path[self.done]

    def after(self, action: str, advice: str) -> "Expert":
        """Return the place after an action that was understood, where `advice` was advised."""
        if self.next_action and action in (advice, self.next_action):
            return replace(self, done=self.done + 1)
        return replace(self, lost=self.lost or action not in FREE)


def translated(expert: Expert, state: SimulatorState, admissible: tuple[str, ...]) -> tuple[Expert, str]:
    """Return the place on the path, and the admissible action that does what the simulator's solution names there: the
    same template, and objects that have these names. Empty if there is none.

    Opening what is open already and picking up what is carried are left out: simplifications open doors, and the
    solution does not know it.
    """
    action = _translated(expert.next_action, state, admissible)
    while not action and _is_done(expert.next_action, state):
        expert = replace(expert, done=expert.done + 1)
        action = _translated(expert.next_action, state, admissible)
    return expert, action


def _is_done(action: str, state: SimulatorState) -> bool:
    is_carried = action.startswith("pick up ") and action.removeprefix("pick up ") in state.inventory
    return action.startswith("open ") or is_carried


def _translated(action: str, state: SimulatorState, admissible: tuple[str, ...]) -> str:
    template, names = parse(action)
    mirrored = "connect {1} to {0}".format(*names) if template == CONNECT else action
    for choice in (action, mirrored):
        if choice in admissible:
            return choice
    if not action or state.references is None:
        return ""
    names = tuple(map(normalized, names))
    for object_names in _shortened(names):
        for choice in admissible:
            orders = (object_names, object_names[::-1]) if template == CONNECT else (object_names,)
            if any(_means(choice, template, order, state.references) for order in orders):
                return choice
    return ""


def _shortened(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield names of objects with fewer and fewer places: "thermometer in inventory" is the thermometer. The whole name
    comes first: of two trees, "in pot 7" tells which. Of what is no wire, the simulator lists no terminals."""
    before: tuple[str, ...] = ()
    while names != before:
        yield names
        yield tuple(name.replace(" in ", " on ") for name in names)  # the anode on a light bulb
        yield (re.sub(r" terminal \d$", "", names[0]), *names[1:]) if names else ()
        before, names = names, tuple(re.sub(" in (?!.* in ).*", "", name) for name in names)


def _means(action: str, template: str, names: tuple[str, ...], references: References) -> bool:
    ids = references.objects_of.get(action, ())
    if parse(action)[0] != template or len(ids) != len(names):
        return False
    return all(name in map(normalized, references.names_of.get(id, ())) for name, id in zip(names, ids, strict=True))
