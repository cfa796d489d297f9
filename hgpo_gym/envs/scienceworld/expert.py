"""The simulator's solution of a task, in the words of the admissible actions."""

from dataclasses import dataclass, replace

from hgpo_gym.envs.scienceworld.actions import FREE, normalized, parse
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
    if not action or action in admissible or state.references is None:
        return action if action in admissible else ""
    template, names = parse(action)
    names = tuple(map(normalized, names))
    # "thermometer in inventory" is the thermometer. The whole name comes first: of two trees, "in pot 7" tells which.
    for object_names in (names, tuple(name.split(" in ")[0] for name in names)):
        for choice in admissible:
            if _means(choice, template, object_names, state.references):
                return choice
    return ""


def _means(action: str, template: str, names: tuple[str, ...], references: References) -> bool:
    ids = references.objects_of.get(action, ())
    if parse(action)[0] != template or len(ids) != len(names):
        return False
    return all(name in map(normalized, references.names_of.get(id, ())) for name, id in zip(names, ids, strict=True))
