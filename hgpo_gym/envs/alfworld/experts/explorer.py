"""Explorer: an expert that knows only what it has seen. It reads the texts of a game, as an agent does, and never its
state.

It is made for imitation by models with a short memory: the task and the last few texts nearly always determine its next
action. It searches along a fixed tour of the room, the same in every game with this room and this task. If it leaves
the tour for one text, it continues where it left. If it leaves for longer, it starts the tour again. It never looks
around or lists its inventory. It remembers where it saw objects, what it did to them, and what it carries.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hgpo_gym.envs.alfworld.experts.likely_places import EVERY_PLACE, LIKELY_PLACES
from hgpo_gym.envs.alfworld.games.files import TASK_MARKER

APPLIANCES = {"clean": ("sinkbasin", "bathtubbasin"), "heat": ("microwave",), "cool": ("fridge",)}
"""Receptacle types that treat what is held, by the command that does it."""

PATIENCE = 1
"""Number of texts off the tour after which the expert forgets where it left the tour."""

_SENTENCES = (
    r"(?:look at|examine the) (?P<thing>\w+) (?:under|with) the (?P<lamp>\w+)",
    r"(?:find|put) (?P<two>two) (?P<thing>\w+) (?:and put them )?in (?P<target>\w+)",
    r"(?P<treatment>clean|heat|cool) some (?P<thing>\w+) and put it in (?P<target>\w+)",
    r"put a (?P<treatment>clean|hot|cool) (?P<thing>\w+) in (?P<target>\w+)",
    r"put (?:a|some) (?P<thing>\w+) (?:in|on) (?P<target>\w+)",
)

_NAME = r"[a-z]+ \d+"


class HouseholdTask(NamedTuple):
    """A task sentence, understood: types of things and of receptacles.

    Attributes:
        thing: what to fetch.
        target: where to put it; empty if it is to be looked at under `lamp`.
        lamp: what to look at it with, else empty.
        treatment: `clean`, `heat` or `cool` before it is put down, else empty.
        two: whether two of them are to be put into the same target.
    """

    thing: str
    target: str = ""
    lamp: str = ""
    treatment: str = ""
    two: bool = False


def read_task(sentence: str) -> HouseholdTask:
    """Parse a task sentence. Raises ValueError if it is none of ALFWorld's."""
    for pattern in _SENTENCES:
        if found := re.fullmatch(pattern, sentence.strip().rstrip(".")):
            words = found.groupdict()
            return HouseholdTask(
                thing=words["thing"],
                target=words.get("target", ""),
                lamp=words.get("lamp", ""),
                treatment=words.get("treatment", "").replace("hot", "heat"),
                two="two" in words,
            )
    raise ValueError(
        f"The explorer cannot read the task {sentence!r}: choose expert_policy='planner', and milestones=False."
    )


class Explorer:
    """Expert for one game at a time. `begin` and `observe` report texts; `advise` returns the next command.

    What it knows follows from what happened, not from what it advised: any commands may be sent in between.
    """

    def begin(self, opening: str, admissible: Sequence[str]) -> None:
        """Start a game from its opening text. Raises ValueError if the task cannot be read."""
        self._task = read_task(opening.partition(TASK_MARKER)[2])
        self._receptacles: set[str] = set()
        self._seen_in: dict[str, str] = {}  # object: the receptacle where it was last seen
        self._treated: set[str] = set()
        self._held = ""
        self._place = ""  # the receptacle that was gone to or opened last
        self._start_tour()
        self._admit(admissible)

    def observe(self, feedback: str, admissible: Sequence[str]) -> None:
        """Read the answer to any command. The text names the command, if it changed anything."""
        self._read(feedback)
        self._admit(admissible)

    def advise(self) -> str:
        """Return the next command, always an admissible one."""
        return next(self._ideas(), "look")

    # What to do: every method gives commands that apply now, the best first

    def _ideas(self) -> Iterator[str]:
        if not self._held:
            return self._fetch()
        if _type(self._held) != self._task.thing:
            return self._get_rid()
        if self._task.lamp:
            return self._light()
        if self._task.treatment and self._held not in self._treated:
            return self._treat()
        return self._deliver()

    def _fetch(self) -> Iterator[str]:
        """Take one of the objects, if possible here, else where one was seen."""
        candidates = [
            (thing, place)
            for thing, place in self._seen_in.items()
            if _type(thing) == self._task.thing and place != self._target_begun()
        ]
        candidates.sort(key=lambda pair: (pair[0] not in self._treated, _by_number(pair[0])))
        for thing, place in candidates:
            yield from self._possible(f"take {thing} from {place}")
        for _, place in candidates:
            yield from self._approach(place)
        yield from self._search()

    def _get_rid(self) -> Iterator[str]:
        """Put down a useless object on the way."""
        yield from self._possible_with(f"move {self._held} to ")
        yield from self._search()

    def _light(self) -> Iterator[str]:
        yield from self._possible_with(f"use {self._task.lamp} ")
        for thing, place in self._seen_in.items():
            if _type(thing) == self._task.lamp:
                yield from self._approach(place)
        yield from self._search()

    def _treat(self) -> Iterator[str]:
        yield from self._possible_with(f"{self._task.treatment} {self._held} with ")
        for place in self._of_types(APPLIANCES[self._task.treatment]):
            yield from self._approach(place)

    def _deliver(self) -> Iterator[str]:
        begun = self._target_begun()
        targets = [begun] if begun else self._of_types([self._task.target])
        for place in targets:
            yield from self._possible(f"move {self._held} to {place}")
        for place in targets:
            yield from self._approach(place)

    def _search(self) -> Iterator[str]:
        yield from self._possible(f"open {self._place}")
        for place in self._ahead():
            yield from self._approach(place)

    def _approach(self, place: str) -> Iterator[str]:
        """Yield the commands that reveal the content of a receptacle; none if it lies open before the agent."""
        return self._possible(f"go to {place}", f"open {place}")

    def _possible(self, *commands: str) -> Iterator[str]:
        return (command for command in commands if command in self._admissible)

    def _possible_with(self, start: str) -> Iterator[str]:
        return (command for command in self._admissible if command.startswith(start))

    # What is known

    def _ahead(self) -> list[str]:
        """Return the stops of the tour, beginning with the next: likely types first, each in the order of its numbers.

        A target comes last, for what lies there need not be moved, unless it lacks treatment.
        """
        task = self._task
        sought = task.lamp if task.lamp and _type(self._held) == task.thing else task.thing
        types = dict.fromkeys(f"{LIKELY_PLACES.get(sought, '')} {EVERY_PLACE}".split())
        rank = {kind: number for number, kind in enumerate(types)}

        def order(place: str) -> tuple[bool, int, tuple[str, int]]:
            needless = _type(place) == task.target and not task.treatment
            return needless, rank.get(_type(place), len(rank)), _by_number(place)

        stops = sorted(self._receptacles, key=order)
        passed = stops.index(self._stop) + 1 if self._stop else 0
        return stops[passed:] + stops[:passed]

    def _target_begun(self) -> str:
        """Return the target that has one of two objects already, else an empty text."""
        if not self._task.two:
            return ""
        places = [
            place
            for thing, place in self._seen_in.items()
            if _type(thing) == self._task.thing and _type(place) == self._task.target
        ]
        return min(places, key=lambda place: (-places.count(place), _by_number(place)), default="")

    def _of_types(self, types: Sequence[str]) -> list[str]:
        """Return the receptacles, in the order of the types and of their numbers."""
        places = sorted(self._receptacles, key=_by_number)
        return [place for kind in types for place in places if _type(place) == kind]

    # What is seen

    def _admit(self, admissible: Sequence[str]) -> None:
        self._admissible = dict.fromkeys(admissible)
        for command in admissible:
            if found := re.fullmatch(f"go to ({_NAME})", command):
                self._receptacles.add(found[1])
            elif found := re.fullmatch(f"take ({_NAME}) from ({_NAME})", command):
                self._seen_in[found[1]] = found[2]
        self._due = next((place for place in self._ahead() if any(self._approach(place))), "")

    def _read(self, feedback: str) -> None:
        if found := re.match(f"You (?:arrive at|open the) ({_NAME})", feedback):
            self._place = found[1]
        if found := re.search(f"(?:On the|The) ({_NAME})(?: is open. In it)?, you see (.+)\\.", feedback):
            self._see(found[1], re.findall(_NAME, found[2]))
        elif found := re.match(f"You pick up the ({_NAME}) from the ({_NAME})", feedback):
            self._held = found[1]
            self._seen_in.pop(self._held, None)
            self._start_tour()
            return
        elif found := re.match(f"You move the ({_NAME}) to the ({_NAME})", feedback):
            self._held = ""
            self._seen_in[found[1]] = found[2]
            self._start_tour()
            return
        elif found := re.match(f"You (clean|heat|cool) the ({_NAME})", feedback):
            self._note_treatment(found[1], found[2])
        self._follow_tour()

    def _see(self, place: str, things: list[str]) -> None:
        self._seen_in = {thing: where for thing, where in self._seen_in.items() if where != place}
        self._seen_in.update(dict.fromkeys(things, place))

    def _note_treatment(self, verb: str, thing: str) -> None:
        if verb == self._task.treatment:
            self._treated.add(thing)
        elif {verb, self._task.treatment} == {"heat", "cool"}:
            self._treated.discard(thing)  # what is cooled is hot no more

    def _start_tour(self) -> None:
        self._stop = ""  # the last one that was passed
        self._astray = 0

    def _follow_tour(self) -> None:
        if self._place == self._due:
            self._stop = self._place
        self._astray = 0 if self._place == self._stop else self._astray + 1
        if self._astray > PATIENCE:
            self._start_tour()


def _type(name: str) -> str:
    return name.partition(" ")[0]


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.partition(" ")
    return kind, int(number)
