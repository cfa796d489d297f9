"""The actions of the ALFRED domain: when they apply, what they change, and when the task is done.

One function an action, each the counterpart of a PDDL `:action`. The agent and its location go without saying.
"""

from collections.abc import Callable

from hgpo_gym.envs.alfworld.native.game import NOTHING, Action, CompiledGame, State


def commands(game: CompiledGame, state: State) -> dict[str, Action]:
    """Every command that applies in a state, and its action. In no particular order."""
    here = game.receptacles_at[state.location]
    held = state.held
    found = game.commands_anywhere.copy()
    for receptacle in here:
        place = game.receptacles[receptacle]
        del found[f"go to {place}"]
        found[f"examine {place}"] = Action("examineReceptacle", receptacle=receptacle)
        contents = state.contents[receptacle]
        for number in contents & game.toggleable:  # even if the receptacle is closed
            found[f"use {game.objects[number]}"] = Action("ToggleObject", number, receptacle)
        if held != NOTHING:
            for verb, name, places, objects in (
                ("clean", "CleanObject", game.washing, game.cleanable),
                ("heat", "HeatObject", game.heating, game.heatable),
                ("cool", "CoolObject", game.cooling, game.coolable),
            ):
                if receptacle in places and held in objects:  # even if the receptacle is closed
                    found[f"{verb} {game.objects[held]} with {place}"] = Action(name, held, receptacle)
        if receptacle in game.openable:
            if receptacle not in state.opened:
                found[f"open {place}"] = Action("OpenObject", receptacle=receptacle)
                continue
            found[f"close {place}"] = Action("CloseObject", receptacle=receptacle)
        for number in contents:
            if held == NOTHING and number in game.pickupable:
                found[f"take {game.objects[number]} from {place}"] = Action("PickupObject", number, receptacle)
        if held != NOTHING and receptacle in game.fits[held]:
            found[f"move {game.objects[held]} to {place}"] = Action("PutObject", held, receptacle)
    if held != NOTHING:
        # Only what is held can be examined: the domain means to allow what lies here as well, but says
        # `?l - location, ?r - receptacle`, and nothing is of type `location,`.
        found[f"examine {game.objects[held]}"] = Action("examineObject", held)
        if held in game.knives:
            for number in game.sliceable & state.objects_at[state.location]:
                found[f"slice {game.objects[number]} with {game.objects[held]}"] = Action("SliceObject", number)
    return found


def apply(game: CompiledGame, state: State, action: Action) -> State:
    """The state after an action that applies in `state`. The same object if nothing that matters has changed."""
    effect = _EFFECTS.get(action.name)
    return effect(game, state, action.object, action.receptacle) if effect else state


def is_won(game: CompiledGame, state: State) -> bool:
    """Whether the task is done."""
    goal = game.goal
    if goal.task_type == "look_at_obj_in_light":
        lit = goal.lamps & state.toggled
        return state.held in goal.objects and any(
            not lit.isdisjoint(state.contents[receptacle]) for receptacle in game.receptacles_at[state.location]
        )
    objects = goal.objects & getattr(state, goal.quality) if goal.quality else goal.objects
    return any(len(objects & state.contents[receptacle]) >= goal.needed for receptacle in goal.receptacles)


def _go_to(game: CompiledGame, state: State, _: int, receptacle: int) -> State:
    return state._replace(location=game.location_of[receptacle])


def _open(_game: CompiledGame, state: State, _: int, receptacle: int) -> State:
    return state._replace(opened=state.opened | {receptacle})


def _close(_game: CompiledGame, state: State, _: int, receptacle: int) -> State:
    return state._replace(opened=state.opened - {receptacle})


def _take(_game: CompiledGame, state: State, number: int, receptacle: int) -> State:
    return state._replace(
        held=number,
        contents=_with(state.contents, receptacle, state.contents[receptacle] - {number}),
        objects_at=_with(state.objects_at, state.location, state.objects_at[state.location] - {number}),
        taken=state.taken | {(number, receptacle)},
    )


def _move(_game: CompiledGame, state: State, number: int, receptacle: int) -> State:
    return state._replace(
        held=NOTHING,
        contents=_with(state.contents, receptacle, state.contents[receptacle] | {number}),
        objects_at=_with(state.objects_at, state.location, state.objects_at[state.location] | {number}),
        taken=state.taken - {(number, receptacle)},
    )


def _clean(_game: CompiledGame, state: State, number: int, _: int) -> State:
    return state._replace(clean=state.clean | {number})


def _heat(_game: CompiledGame, state: State, number: int, _: int) -> State:
    return state._replace(hot=state.hot | {number}, cool=state.cool - {number})


def _cool(_game: CompiledGame, state: State, number: int, _: int) -> State:
    return state._replace(cool=state.cool | {number}, hot=state.hot - {number})


def _toggle(_game: CompiledGame, state: State, number: int, _: int) -> State:
    return state._replace(toggled=state.toggled | {number})


def _slice(_game: CompiledGame, state: State, number: int, _: int) -> State:
    return state._replace(sliced=state.sliced | {number})


_EFFECTS: dict[str, Callable[[CompiledGame, State, int, int], State]] = {
    "GotoLocation": _go_to,
    "OpenObject": _open,
    "CloseObject": _close,
    "PickupObject": _take,
    "PutObject": _move,
    "CleanObject": _clean,
    "HeatObject": _heat,
    "CoolObject": _cool,
    "ToggleObject": _toggle,
    "SliceObject": _slice,
}
"""The actions with effects. The others only look."""


def _with(sets: tuple[frozenset[int], ...], index: int, value: frozenset[int]) -> tuple[frozenset[int], ...]:
    return (*sets[:index], value, *sets[index + 1 :])
