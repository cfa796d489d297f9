"""Actions of the ALFRED domain: their preconditions, their effects, and the test for success.

Each function is the counterpart of one PDDL `:action`. The agent and its location are implicit.
"""

from collections.abc import Callable, Iterator

from hgpo_gym.envs.alfworld.native.game import NOTHING, CompiledGame, GroundAction, WorldState

Commands = Iterator[tuple[str, GroundAction]]


def commands(game: CompiledGame, state: WorldState) -> dict[str, GroundAction]:
    """Return every command that applies in a state, and its action. In no particular order."""
    found = game.commands_anywhere.copy()
    for receptacle in game.receptacles_at[state.location]:
        del found[f"go to {game.receptacles[receptacle]}"]
        found.update(_receptacle_commands(game, state, receptacle))
        if state.held != NOTHING:
            found.update(_appliance_commands(game, state, receptacle))
    if state.held != NOTHING:
        found.update(_hand_commands(game, state))
    return found


def _receptacle_commands(game: CompiledGame, state: WorldState, receptacle: int) -> Commands:
    """Yield the actions on a receptacle here, on its content, and on the held object that goes into it."""
    place, contents = game.receptacles[receptacle], state.contents[receptacle]
    yield f"examine {place}", GroundAction("examineReceptacle", receptacle=receptacle)
    for number in contents & game.toggleable:  # even if the receptacle is closed
        yield f"use {game.objects[number]}", GroundAction("ToggleObject", number, receptacle)
    if receptacle in game.openable:
        if receptacle not in state.opened:
            yield f"open {place}", GroundAction("OpenObject", receptacle=receptacle)
            return
        yield f"close {place}", GroundAction("CloseObject", receptacle=receptacle)
    if state.held == NOTHING:
        for number in contents & game.pickupable:
            yield f"take {game.objects[number]} from {place}", GroundAction("PickupObject", number, receptacle)
    elif receptacle in game.fits[state.held]:
        yield f"move {game.objects[state.held]} to {place}", GroundAction("PutObject", state.held, receptacle)


def _appliance_commands(game: CompiledGame, state: WorldState, receptacle: int) -> Commands:
    """Yield the actions of a receptacle here on the held object. Whether it is open does not matter."""
    held, obj, place = state.held, game.objects[state.held], game.receptacles[receptacle]
    if receptacle in game.washing and held in game.cleanable:
        yield f"clean {obj} with {place}", GroundAction("CleanObject", held, receptacle)
    if receptacle in game.heating and held in game.heatable:
        yield f"heat {obj} with {place}", GroundAction("HeatObject", held, receptacle)
    if receptacle in game.cooling and held in game.coolable:
        yield f"cool {obj} with {place}", GroundAction("CoolObject", held, receptacle)


def _hand_commands(game: CompiledGame, state: WorldState) -> Commands:
    """Yield the actions on the held object, and with it on objects here."""
    obj = game.objects[state.held]
    # Only what is held can be examined: the domain means to allow what lies here as well, but writes
    # `(exists (?l - location, ?r - receptacle) ...)`, and nothing is of a type `location,`.
    yield f"examine {obj}", GroundAction("examineObject", state.held)
    if state.held in game.knives:
        for number in game.sliceable & state.objects_at[state.location]:
            yield f"slice {game.objects[number]} with {obj}", GroundAction("SliceObject", number)


def apply(game: CompiledGame, state: WorldState, action: GroundAction) -> WorldState:
    """Return the state after an action that applies in `state`. Return the same object if nothing relevant has
    changed."""
    effect = _EFFECTS.get(action.name)
    return effect(game, state, action.object, action.receptacle) if effect else state


def is_won(game: CompiledGame, state: WorldState) -> bool:
    """Return whether the task is done."""
    goal = game.goal
    if goal.task_type == "look_at_obj_in_light":
        lit = goal.lamps & state.toggled
        return state.held in goal.objects and any(
            not lit.isdisjoint(state.contents[receptacle]) for receptacle in game.receptacles_at[state.location]
        )
    objects = goal.objects & getattr(state, goal.quality) if goal.quality else goal.objects
    return any(len(objects & state.contents[receptacle]) >= goal.needed for receptacle in goal.receptacles)


def _take(_game: CompiledGame, state: WorldState, number: int, receptacle: int) -> WorldState:
    return state._replace(
        held=number,
        contents=_with(state.contents, receptacle, state.contents[receptacle] - {number}),
        objects_at=_with(state.objects_at, state.location, state.objects_at[state.location] - {number}),
        taken=state.taken | {(number, receptacle)},
    )


def _move(_game: CompiledGame, state: WorldState, number: int, receptacle: int) -> WorldState:
    return state._replace(
        held=NOTHING,
        contents=_with(state.contents, receptacle, state.contents[receptacle] | {number}),
        objects_at=_with(state.objects_at, state.location, state.objects_at[state.location] | {number}),
        taken=state.taken - {(number, receptacle)},
    )


_EFFECTS: dict[str, Callable[[CompiledGame, WorldState, int, int], WorldState]] = {
    "GotoLocation": lambda game, state, _, place: state._replace(location=game.location_of[place]),
    "OpenObject": lambda _game, state, _, place: state._replace(opened=state.opened | {place}),
    "CloseObject": lambda _game, state, _, place: state._replace(opened=state.opened - {place}),
    "PickupObject": _take,
    "PutObject": _move,
    "CleanObject": lambda _game, state, item, _: state._replace(clean=state.clean | {item}),
    "HeatObject": lambda _game, state, item, _: state._replace(hot=state.hot | {item}, cool=state.cool - {item}),
    "CoolObject": lambda _game, state, item, _: state._replace(cool=state.cool | {item}, hot=state.hot - {item}),
    "ToggleObject": lambda _game, state, item, _: state._replace(toggled=state.toggled | {item}),
    "SliceObject": lambda _game, state, item, _: state._replace(sliced=state.sliced | {item}),
}
"""The actions with effects, by (game, state, object, receptacle). The others only look."""


def _with(sets: tuple[frozenset[int], ...], index: int, value: frozenset[int]) -> tuple[frozenset[int], ...]:
    return (*sets[:index], value, *sets[index + 1 :])
