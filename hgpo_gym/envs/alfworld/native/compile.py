"""Compiles a `game.tw-pddl` into the tables that the native engine plays on."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from hgpo_gym.envs.alfworld.native.fingerprint import GameRules, UnknownGameRules, identify, task_sentence
from hgpo_gym.envs.alfworld.native.game import NOTHING, CompiledGame, GoalCondition, Numbers, WorldState
from hgpo_gym.envs.alfworld.native.pddl import Problem, parse_problem, tokens

PLACE = "(and (exists (?r - receptacle) (exists (?o - object) (and {conditions}))))"
GOALS = {
    "pick_and_place_simple": PLACE.format(
        conditions="(inReceptacle ?o ?r) (objectType ?o {o}) (receptacleType ?r {r})"
    ),
    **{
        task_type: PLACE.format(
            conditions=f"({able} ?o) (objectType ?o {{o}}) (receptacleType ?r {{r}}) ({state} ?o) (inReceptacle ?o ?r)"
        )
        for task_type, able, state in (
            ("pick_clean_then_place_in_recep", "cleanable", "isClean"),
            ("pick_heat_then_place_in_recep", "heatable", "isHot"),
            ("pick_cool_then_place_in_recep", "coolable", "isCool"),
        )
    },
    "pick_two_obj_and_place": """(and (exists (?r - receptacle) (exists (?o1 - object) (and
        (objectType ?o1 {o}) (receptacleType ?r {r}) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and
        (not (= ?o1 ?o2)) (objectType ?o2 {o}) (receptacleType ?r {r}) (inReceptacle ?o2 ?r)))))))""",
    "look_at_obj_in_light": """(and
        (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot {lamp}) (toggleable ?ot)
            (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
        (exists (?o - object ?a - agent) (and (objectType ?o {o}) (holds ?a ?o))))""",
}
"""The goals of the six task types."""

QUALITIES = {
    "pick_clean_then_place_in_recep": ("clean", "cleanable"),
    "pick_heat_then_place_in_recep": ("hot", "heatable"),
    "pick_cool_then_place_in_recep": ("cool", "coolable"),
}
"""Predicates of the object's quality: the one that must hold, and the one that makes it possible."""

KNIVES = ("knifetype", "butterknifetype")
HEATING = ("microwavetype",)
COOLING = ("fridgetype",)


def compile_game(game: Mapping[str, Any]) -> CompiledGame:
    """Compile a game.

    Args:
        game: the content of a `game.tw-pddl`: `pddl_domain`, `grammar` and `pddl_problem` are read.

    Raises:
        ValueError: the game has no such texts, or its problem is not valid PDDL.
        UnknownGameRules: the game follows rules that this engine does not know.
    """
    names = ("pddl_domain", "grammar", "pddl_problem")
    if not isinstance(game, Mapping) or not all(isinstance(game.get(name), str) for name in names):
        raise ValueError(f"A game is a mapping with the texts {', '.join(names)}.")
    rules = identify(game["pddl_domain"], game["grammar"])
    return _Compiler(parse_problem(game["pddl_problem"]), rules).compile(task_sentence(game["grammar"]))


class _Compiler:
    """Compiler that numbers the names of a problem and turns its facts into sets of numbers."""

    def __init__(self, problem: Problem, rules: GameRules):
        self.problem = problem
        self.rules = rules
        facts = problem.facts
        # TextWorld lists names in the order of their PDDL names; the numbers follow it.
        present = sorted({name for arguments in facts.values() for fact in arguments for name in fact})
        self.text_names = text_names(present)
        self.numbers: dict[str, int] = {}
        for kind in ("receptacle", "object", "location"):
            of_kind = [name for name in present if problem.types[name] == kind]
            self.numbers.update({name: number for number, name in enumerate(of_kind)})
        self.receptacle_types = _index(facts["receptacletype"])
        self.object_types = _index(facts["objecttype"])

    def compile(self, task: str) -> CompiledGame:
        problem, rules = self.problem, self.rules
        receptacles, objects = self._names("receptacle"), self._names("object")
        return CompiledGame(
            task=task,
            goal=self._goal(),
            receptacles=tuple(self.text_names[name] for name in receptacles),
            objects=tuple(self.text_names[name] for name in objects),
            location_of=self._locations(receptacles),
            fits=tuple(self._fits(name) for name in objects),
            insides=self._insides(),
            openable=self._set("openable"),
            washing=self._receptacles_of(rules.washing_places),
            heating=self._receptacles_of(HEATING),
            cooling=self._receptacles_of(COOLING),
            pickupable=self._set("pickupable"),
            cleanable=self._set("cleanable"),
            heatable=self._set("heatable"),
            coolable=self._set("coolable"),
            toggleable=self._set("toggleable"),
            sliceable=self._set("sliceable"),
            knives=self._objects_of(KNIVES),
            initial=WorldState(
                location=self._start(),
                held=NOTHING,
                opened=self._set("opened"),
                contents=self._members(problem.facts["inreceptacle"], receptacles),
                objects_at=self._members(problem.facts["objectatlocation"], self._names("location")),
                taken=frozenset(),
                clean=self._set("isclean"),
                hot=self._set("ishot"),
                cool=self._set("iscool"),
                sliced=self._set("issliced"),
                toggled=self._set("istoggled"),
            ),
        )

    def _names(self, kind: str) -> list[str]:
        """Return every name of a kind, by number."""
        return [name for name in self.numbers if self.problem.types[name] == kind]

    def _set(self, predicate: str) -> Numbers:
        return frozenset(self.numbers[name] for name in self.problem.those(predicate))

    def _receptacles_of(self, types: tuple[str, ...]) -> Numbers:
        return frozenset(n for name, n in self.numbers.items() if self.receptacle_types[name].intersection(types))

    def _objects_of(self, types: tuple[str, ...]) -> Numbers:
        return frozenset(n for name, n in self.numbers.items() if self.object_types[name].intersection(types))

    def _members(self, pairs: set[tuple[str, ...]], places: list[str]) -> tuple[Numbers, ...]:
        """Return for every place the objects that (object, place) pairs put there."""
        by_place = _index((place, name) for name, place in pairs)
        return tuple(frozenset(self.numbers[name] for name in by_place[place]) for place in places)

    def _start(self) -> int:
        agents = self.problem.facts["atlocation"]
        if len(agents) != 1 or list(self.problem.types.values()).count("agent") != 1:
            raise UnknownGameRules("The native engine plays games with one agent, at one location.")
        ((_, location),) = agents
        return self.numbers[location]

    def _locations(self, receptacles: list[str]) -> tuple[int, ...]:
        places = _index(self.problem.facts["receptacleatlocation"])
        if any(len(places[name]) > 1 for name in receptacles):
            raise UnknownGameRules("The native engine plays games whose receptacles are at one location each.")
        return tuple(next((self.numbers[place] for place in places[name]), NOTHING) for name in receptacles)

    def _fits(self, name: str) -> Numbers:
        suitable = {rtype for rtype, otype in self.problem.facts["cancontain"] if otype in self.object_types[name]}
        return self._receptacles_of(tuple(suitable))

    def _insides(self) -> dict[int, tuple[int, ...]]:
        inside = _index((outer, inner) for inner, outer in self.problem.facts["inreceptacleobject"])
        return {
            self.numbers[outer]: tuple(sorted(self.numbers[inner] for inner in inside[outer] if inner != outer))
            for outer in sorted(self.problem.those("isreceptacleobject"))
        }

    def _goal(self) -> GoalCondition:
        task_type, types = match_goal(self.problem.goal)
        objects = self._objects_of((types["o"],))
        if task_type == "look_at_obj_in_light":
            lamps = self._objects_of((types["lamp"],)) & self._set("toggleable")
            return GoalCondition(task_type, objects, lamps=lamps)
        quality, ability = QUALITIES.get(task_type, ("", ""))
        return GoalCondition(
            task_type,
            objects & self._set(ability) if ability else objects,
            receptacles=self._receptacles_of((types["r"],)),
            quality=quality,
            needed=2 if task_type == "pick_two_obj_and_place" else 1,
        )


def match_goal(goal: str) -> tuple[str, dict[str, str]]:
    """Return the task type of a goal, and the types that it names: `o` (object), `r` (receptacle), `lamp`.

    Raises:
        UnknownGameRules: it is the goal of none of the six task types.
    """
    for task_type, pattern in _GOAL_PATTERNS.items():
        if match := pattern.fullmatch(goal):
            return task_type, match.groupdict()
    raise UnknownGameRules(f"The goal is that of none of the task types {', '.join(GOALS)}: {goal}")


def text_names(names: list[str]) -> dict[str, str]:
    """Return the names in the text for PDDL names in ascending order: `Cabinet_bar_...` becomes `cabinet 3`.

    Numbers count down: of three cabinets, the first is `cabinet 3`. A name without coordinates keeps a blank in place
    of its number. Basins are named apart from the sink or bathtub that they are part of.
    """
    kinds = {}
    for name in names:
        kind, bar, _ = name.partition("_bar_")
        # `Sink_bar_..._bar_SinkBasin` becomes `sinkbasin`, apart from `sink`.
        kinds[name] = (kind + "basin" if "basin" in name else kind) if bar else ""
    remaining = Counter(kinds.values())
    result = {}
    for name, kind in kinds.items():
        # The blank is part of the original's names: commands must match to the letter.
        result[name] = f"{kind} {remaining[kind]}" if kind else f"{name} "
        remaining[kind] -= 1
    return result


def _index(pairs) -> defaultdict[str, set[str]]:
    """Return the second items of (first, second) pairs by their first item."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for first, second in pairs:
        found[first].add(second)
    return found


def _pattern(goal: str) -> re.Pattern[str]:
    """Return a regular expression for the one-line form of a goal. `{o}` stands for a type, the same at each
    occurrence."""
    seen: set[str] = set()

    def part(token: str) -> str:
        if not token.startswith("{"):
            return re.escape(token)
        name = token.strip("{}")
        is_repeated = name in seen
        seen.add(name)
        return f"(?P={name})" if is_repeated else rf"(?P<{name}>\S+)"

    return re.compile(" ".join(map(part, tokens(goal))))


_GOAL_PATTERNS = {task_type: _pattern(goal) for task_type, goal in GOALS.items()}
