"""Compiled game (constant during play) and its state (changed by actions), as small immutable values over integers.

Receptacles, objects and locations are numbered in the order of their PDDL names, which is the order in which
TextWorld lists them.
"""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

NOTHING = -1
"""Number in place of an object: none."""

Numbers = frozenset[int]


class WorldState(NamedTuple):
    """State that actions change. A tuple: hashable, and cheap to store, compare and restore.

    Attributes:
        location: where the agent stands.
        held: the object in its hand, or NOTHING.
        opened: the receptacles that are open.
        contents: for every receptacle, the objects in or on it. An object may be in several.
        objects_at: for every location, the objects there.
        taken: (object, receptacle) pairs: objects that were taken from a receptacle and not put back.
        clean, hot, cool, sliced, toggled: the objects that are so.
    """

    location: int
    held: int
    opened: Numbers
    contents: tuple[Numbers, ...]
    objects_at: tuple[Numbers, ...]
    taken: frozenset[tuple[int, int]]
    clean: Numbers
    hot: Numbers
    cool: Numbers
    sliced: Numbers
    toggled: Numbers


class GroundAction(NamedTuple):
    """Action of the domain that a command stands for, with its arguments."""

    name: str
    object: int = NOTHING
    receptacle: int = NOTHING


class GoalCondition(NamedTuple):
    """Condition for success.

    `look_at_obj_in_light`: one of `objects` is in the hand, and one of `lamps` has been switched on and is in a
    receptacle at the agent's location. All others: `needed` of `objects` are in the same one of `receptacles`; if
    `quality` (clean, hot, cool) is not empty, they have it.
    """

    task_type: str
    objects: Numbers
    receptacles: Numbers = frozenset()
    lamps: Numbers = frozenset()
    quality: str = ""
    needed: int = 1


@dataclass(frozen=True)
class CompiledGame:
    """A game of the ALFRED domain, shared by every engine that plays it.

    Attributes:
        task: the sentence that ends the opening text.
        goal: what wins.
        receptacles, objects: their names in the text, such as `cabinet 1`.
        location_of: the location of every receptacle, or NOTHING.
        fits: for every object, the receptacles that can hold it.
        insides: for every object that can hold objects, those in it; they cannot be reached.
        openable, washing, heating, cooling: receptacles that open; where objects are cleaned, heated, cooled.
        pickupable, cleanable, heatable, coolable, toggleable, sliceable, knives: objects.
        initial: the state at the start.
    """

    task: str
    goal: GoalCondition
    receptacles: tuple[str, ...]
    objects: tuple[str, ...]
    location_of: tuple[int, ...]
    fits: tuple[Numbers, ...]
    insides: dict[int, tuple[int, ...]]
    openable: Numbers
    washing: Numbers
    heating: Numbers
    cooling: Numbers
    pickupable: Numbers
    cleanable: Numbers
    heatable: Numbers
    coolable: Numbers
    toggleable: Numbers
    sliceable: Numbers
    knives: Numbers
    initial: WorldState

    @cached_property
    def receptacles_at(self) -> tuple[tuple[int, ...], ...]:
        """Return for every location the receptacles there."""
        found: list[list[int]] = [[] for _ in self.initial.objects_at]
        for receptacle, location in enumerate(self.location_of):
            if location != NOTHING:
                found[location].append(receptacle)
        return tuple(map(tuple, found))

    @cached_property
    def commands_anywhere(self) -> dict[str, GroundAction]:
        """Return the commands at a location without receptacles. Elsewhere the agent cannot go to where it already
        is."""
        return {
            "look": GroundAction("look"),
            "inventory": GroundAction("inventory"),
            "help": GroundAction("help"),
            **{
                f"go to {name}": GroundAction("GotoLocation", receptacle=receptacle)
                for receptacle, (name, at) in enumerate(zip(self.receptacles, self.location_of, strict=True))
                if at != NOTHING
            },
        }

    def to_json(self) -> str:
        """Return the game as JSON, sets in ascending order: equal games give equal text."""
        return json.dumps(asdict(self), default=sorted, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "CompiledGame":
        """Return the game that `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        task_type, objects, receptacles, lamps, quality, needed = data["goal"]
        location, held, opened, contents, objects_at, taken_pairs, *qualities = data["initial"]
        # Fields of the type `Numbers` are sets, which JSON holds as lists.
        sets = {name: frozenset(value) for name, value in data.items() if cls.__annotations__[name] is Numbers}
        return cls(
            task=data["task"],
            goal=GoalCondition(
                task_type, frozenset(objects), frozenset(receptacles), frozenset(lamps), quality, needed
            ),
            receptacles=tuple(data["receptacles"]),
            objects=tuple(data["objects"]),
            location_of=tuple(data["location_of"]),
            fits=tuple(map(frozenset, data["fits"])),
            insides={int(holder): tuple(inner) for holder, inner in data["insides"].items()},
            initial=WorldState(
                location,
                held,
                frozenset(opened),
                tuple(map(frozenset, contents)),
                tuple(map(frozenset, objects_at)),
                frozenset(map(tuple, taken_pairs)),
                *map(frozenset, qualities),
            ),
            **sets,
        )
