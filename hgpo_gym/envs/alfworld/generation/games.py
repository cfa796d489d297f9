"""Generate ALFWorld games: rooms like ALFRED's (`rooms.py`), tasks of the six types, each solvable.

A game is a pure function of its seed and is written down as an ordinary `game.tw-pddl` with its `traj_data.json`, which
TextWorld, alfworld and the native engine all play. Domain, grammar, what fits where and what can be done with what come
from the alfworld package; `tests/unit/envs/alfworld/test_alfworld_generator.py` compares the games with ALFWorld's own.
"""

import functools
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from hgpo_gym.envs.alfworld.games.files import TASK_MARKER, TASK_TYPES, task_id
from hgpo_gym.envs.alfworld.generation import rooms
from hgpo_gym.envs.alfworld.native import compile as compiler
from hgpo_gym.envs.alfworld.native import compile_game, planner, rules, shortest_plan
from hgpo_gym.envs.alfworld.native.compile import GOALS, QUALITIES
from hgpo_gym.files import content_key, source_digest

try:
    from alfworld.gen import constants
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Generating ALFWorld games needs the files of the package alfworld ({error}), not what it depends on: "
        'pip install --no-deps "alfworld>=0.4.2"',
        name=error.name,
    ) from error

LAMP = "DeskLamp"
"""Lamp type of `look_at_obj_in_light`. Floor lamps stand on no receptacle, but the goal needs one."""

_KINDS = {
    "pick_and_place_simple": {"kitchen": 9, "living": 11, "bedroom": 12, "bathroom": 14},
    "look_at_obj_in_light": {"living": 1, "bedroom": 18},
    "pick_clean_then_place_in_recep": {"kitchen": 27, "bathroom": 10},
    "pick_heat_then_place_in_recep": {"kitchen": 1},
    "pick_cool_then_place_in_recep": {"kitchen": 1},
    "pick_two_obj_and_place": {"kitchen": 1, "living": 16, "bedroom": 14, "bathroom": 14},
}
"""Room kinds of a task, by their weight in `valid_train`."""

_SENTENCES = {
    "pick_and_place_simple": ("put a {o} in {r}", "put some {o} on {r}"),
    "look_at_obj_in_light": ("look at {o} under the {r}", "examine the {o} with the {r}"),
    "pick_clean_then_place_in_recep": ("put a clean {o} in {r}", "clean some {o} and put it in {r}"),
    "pick_heat_then_place_in_recep": ("put a hot {o} in {r}", "heat some {o} and put it in {r}"),
    "pick_cool_then_place_in_recep": ("put a cool {o} in {r}", "cool some {o} and put it in {r}"),
    "pick_two_obj_and_place": ("put two {o} in {r}", "find two {o} and put them in {r}"),
}
"""ALFWorld's task sentences, each equally likely."""

_COPIES = {1: 55, 2: 47, 3: 31, 4: 22}
_COPIES_OF_TWO = {2: 19, 3: 10, 4: 16}
"""Number of objects of the task's type, by weight: of other tasks, and of tasks about two objects."""

_NEVER_A_TARGET = ("BathtubBasin", "SinkBasin")
_NEVER_TREATED = ("Bread",)
"""Object types without a treatment. `valid_train` has no clean, hot or cool bread: ALFRED's tasks use slices of it."""

_TREATED_IN = {"clean": "SinkBasin", "hot": "Microwave", "cool": "Fridge"}
"""Receptacle type that gives an object the quality of the task. The task then leads on to another place."""


@dataclass(frozen=True, slots=True)
class GeneratedGame:
    """Generated game.

    Attributes:
        seed: together with the task type, it decides the game.
        task_id: as `splits.find_games` gives it.
        task_type: one of `files.TASK_TYPES`.
        game: the content of `game.tw-pddl`; `walkthrough` is a shortest solution.
        trajectory: the content of `traj_data.json`: what the task is about.
    """

    seed: int
    task_id: str
    task_type: str
    game: dict[str, Any]
    trajectory: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Folder of the game in a split: `<task>/<trial>`, as ALFWorld names them."""
        about, kind = self.trajectory["pddl_params"], self.trajectory["scene"]["floor_plan"]
        target = about["parent_target"] or about["toggle_target"]
        return Path(f"{self.task_type}-{about['object_target']}-None-{target}-{kind}", f"trial_{self.seed:08}")


@dataclass(frozen=True, slots=True)
class _GameTask:
    type: str
    kind: str
    object: str
    target: str
    """Receptacle type, or `LAMP`."""


def generate_game(seed: int) -> GeneratedGame:
    """Return the game of a seed, 0 or more: solvable, not solved at the start, the same on every machine. The types of
    tasks take turns."""
    task_type, rng = TASK_TYPES[seed % len(TASK_TYPES)], Random(seed)
    plan = None
    while not plan:  # a room may have no place for what the task needs
        task, receptacles, things = _draw(rng, task_type)
        game = {
            "pddl_domain": _domain(),
            "grammar": _grammar(rng.choices(_SENTENCES[task_type])[0].format(o=task.object, r=task.target).lower()),
            "pddl_problem": _problem(task, receptacles, things),
            "solvable": True,
        }
        compiled = compile_game(game)
        plan = shortest_plan(compiled, compiled.initial)
    trajectory = _trajectory(seed, task)
    return GeneratedGame(seed, task_id(game, trajectory), task_type, {**game, "walkthrough": plan}, trajectory)


def write_games(
    folder: Path, seeds: Collection[int], on_progress: Callable[[int, int], None] | None = None
) -> list[GeneratedGame]:
    """Generate the games of these seeds below `folder`, in the layout of `alfworld-download`.

    Args:
        on_progress: called with (games written, games in all) after each.
    """
    written = []
    for seed in seeds:
        game = generate_game(seed)
        place = folder / game.folder
        place.mkdir(parents=True)
        (place / "game.tw-pddl").write_text(json.dumps(game.game))
        (place / "traj_data.json").write_text(json.dumps(game.trajectory))
        written.append(game)
        if on_progress:
            on_progress(len(written), len(seeds))
    return written


def fingerprint() -> str:
    """Return 16 hexadecimal digits that change with this code and the package, which decide the game of a seed."""
    code = source_digest(sys.modules[__name__], rooms, compiler, rules, planner, constants)
    return content_key([code, _domain(), _bare_grammar()])


def _draw(rng: Random, task_type: str) -> tuple[_GameTask, list[rooms.Receptacle], list[rooms.Thing]]:
    """Draw a task and its room. The room may lack what the task needs."""
    kinds = _KINDS[task_type]
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    receptacles = rooms.furnish(rng, kind)
    targets = _targets(task_type, kind, receptacles)
    common = rooms.how_common(kind)
    chosen = rng.choices(list(targets), [common[name] for name in targets])[0]
    task = _GameTask(task_type, kind, chosen, rng.choices(targets[chosen])[0])
    copies = _COPIES_OF_TWO if task_type == "pick_two_obj_and_place" else _COPIES
    numbers = {task.object: rng.choices(list(copies), list(copies.values()))[0]}
    if task.target == LAMP:
        numbers[LAMP] = 1
    # As in valid_train, the object starts neither where it is to be treated nor, if it is not, where it is to go.
    quality, _ = QUALITIES.get(task_type, ("", ""))
    excluded_place = (task.object, _TREATED_IN.get(quality, task.target))
    return task, receptacles, rooms.fill(rng, kind, receptacles, numbers, excluded_place)


def _targets(task_type: str, kind: str, receptacles: list[rooms.Receptacle]) -> dict[str, list[str]]:
    """Return the possible targets of every object type that the task may be about."""
    present = dict.fromkeys(place.type for place in receptacles)
    quality, ability = QUALITIES.get(task_type, ("", ""))
    found = {}
    for name in rooms.how_common(kind):
        if ability and (name in _NEVER_TREATED or name not in constants.VAL_ACTION_OBJECTS[ability.capitalize()]):
            continue
        if task_type == "look_at_obj_in_light":
            found[name] = [LAMP]
            continue
        unsuitable = {*_NEVER_A_TARGET, _TREATED_IN.get(quality)}
        suitable = [place for place in present if _fits(name, place) and place not in unsuitable]
        if task_type == "pick_two_obj_and_place":
            suitable = [place for place in suitable if place not in rooms.HOLDS_ONE]
        if suitable:
            found[name] = suitable
    return found


def _fits(obj: str, place: str) -> bool:
    return obj in constants.VAL_RECEPTACLE_OBJECTS.get(place, ())


def _problem(task: _GameTask, receptacles: list[rooms.Receptacle], things: list[rooms.Thing]) -> str:
    """Return the PDDL problem of a task in a room. The agent starts away from all receptacles."""
    places = sorted({place.type for place in receptacles})
    objects = sorted({obj.type for obj in things})
    names = [
        "agent1 - agent",
        *(f"{name}Type - otype" for name in objects),
        *(f"{name}Type - rtype" for name in places),
        *(f"{obj.name} - object" for obj in things),
        *(f"{place.name} - receptacle" for place in receptacles),
        *(f"loc_bar_{number} - location" for number in ("start", *sorted({place.location for place in receptacles}))),
    ]
    facts = [
        "atLocation agent1 loc_bar_start",
        *(fact for place in receptacles for fact in _receptacle_facts(place)),
        *(f"canContain {place}Type {name}Type" for place in places for name in objects if _fits(name, place)),
        *(fact for obj in things for fact in _thing_facts(obj)),
    ]
    listed, stated = "\n".join(names), "\n".join(f"({fact})" for fact in facts)
    goal = GOALS[task.type].format(o=f"{task.object}Type", r=f"{task.target}Type", lamp=f"{LAMP}Type")
    return f"(define (problem generated) (:domain alfred)\n(:objects\n{listed})\n(:init\n{stated})\n(:goal {goal}))"


def _receptacle_facts(place: rooms.Receptacle) -> Iterator[str]:
    yield f"receptacleType {place.name} {place.type}Type"
    yield f"receptacleAtLocation {place.name} loc_bar_{place.location}"
    if place.openable:
        yield f"openable {place.name}"


def _thing_facts(obj: rooms.Thing) -> Iterator[str]:
    yield f"objectType {obj.name} {obj.type}Type"
    yield f"inReceptacle {obj.name} {obj.place.name}"
    yield f"objectAtLocation {obj.name} loc_bar_{obj.place.location}"
    if obj.pickupable:
        yield f"pickupable {obj.name}"
    if obj.type in constants.MOVABLE_RECEPTACLES_SET:
        yield f"isReceptacleObject {obj.name}"
    for able, types in sorted(constants.VAL_ACTION_OBJECTS.items()):
        if obj.type in types:
            yield f"{able.lower()} {obj.name}"


def _trajectory(seed: int, task: _GameTask) -> dict[str, Any]:
    """Return the fields that alfworld's readers expect, under their names in ALFRED."""
    lamp = task.target == LAMP
    pddl_params = {
        "mrecep_target": "",
        "object_sliced": False,
        "object_target": task.object,
        "parent_target": "" if lamp else task.target,
        "toggle_target": LAMP if lamp else "",
    }
    return {
        "task_id": f"trial_{seed:08}",
        "task_type": task.type,
        "pddl_params": pddl_params,
        "scene": {"floor_plan": task.kind},
    }


@functools.cache
def _domain() -> str:
    """Return the package's domain without comments and layout: every game carries a copy."""
    return " ".join(re.sub(r";[^\n]*", "", _package_text("alfred.pddl")).split())


def _grammar(instruction: str) -> str:
    """Return the package's grammar with this instruction, without indentation."""
    return _bare_grammar().replace(f"{TASK_MARKER}UNKNOWN GOAL", TASK_MARKER + instruction)


@functools.cache
def _bare_grammar() -> str:
    return re.sub(r"\n\s+(?=[\"{}\[\]])", "\n", _package_text("alfred.twl2"))


def _package_text(name: str) -> str:
    return (files("alfworld") / "data" / name).read_text()
