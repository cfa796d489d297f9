"""Texts of the game: the text grammar of ALFWorld (`alfred.twl2`), one function a rule.

`state` is the state after the action that the text answers. Oddities of the original are kept; comments name them.
"""

from collections.abc import Iterable

from hgpo_gym.envs.alfworld.native.game import NOTHING, CompiledGame, GroundAction, WorldState

NOTHING_HAPPENS = "Nothing happens."
"""The answer to a command that does not apply."""

RESPONSES = {
    "GotoLocation": "You arrive at {r}.",
    "OpenObject": "You open the {r}.",
    "CloseObject": "You close the {r}.",
    "PickupObject": "You pick up the {o} from the {r}.",
    "PutObject": "You move the {o} to the {r}.",
    "CleanObject": "You clean the {o} using the {r}.",
    "HeatObject": "You heat the {o} using the {r}.",
    "CoolObject": "You cool the {o} using the {r}.",
    "ToggleObject": "You turn on the {o}.",  # "off" is in the grammar, but no action unsets isToggled
    "SliceObject": "You sliced the {o} with the {held}.",
}
"""The answers to actions that change something. `o` and `r`: what the action is about."""

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""
"""The answer to `help`. The grammar starts it with an empty line, which TextWorld's parser skips."""


def opening(game: CompiledGame, state: WorldState) -> str:
    """Return the opening text of a game."""
    if game.receptacles_at[state.location]:
        around = look(game, state)
    else:
        placed = (name for name, at in zip(game.receptacles, game.location_of, strict=True) if at != NOTHING)
        around = _middle_of_room(_list(placed))
    return f"-= Welcome to TextWorld, ALFRED! =-\n\n{around}\n\n{game.task}"


def feedback(game: CompiledGame, state: WorldState, action: GroundAction) -> str:
    """Return the answer to a command that applied."""
    match action.name:
        case "look":
            return look(game, state)
        case "inventory":
            return inventory(game, state)
        case "help":
            return HELP
        case "examineObject":
            return examine_object(game, state, action.object)
        case "examineReceptacle":
            return examine_receptacle(game, state, action.receptacle)
        case "GotoLocation" | "OpenObject":
            return f"{_response(game, state, action)} {examine_receptacle(game, state, action.receptacle)}"
        case _:
            return _response(game, state, action)


def look(game: CompiledGame, state: WorldState) -> str:
    """Return the answer to `look`."""
    receptacles = game.receptacles_at[state.location]
    if not receptacles:
        # Unlike the opening text, `look` asks for the receptacles at the agent's own location: there are none.
        return _middle_of_room("nothing")
    facing = _join([game.receptacles[receptacle] for receptacle in receptacles])
    # Not what lies on the floor, but what was taken from one receptacle here and moved to another one here.
    beside = [
        game.objects[number]
        for number in sorted(state.objects_at[state.location])
        for receptacle in receptacles
        if (number, receptacle) in state.taken
    ]
    return f"You are facing the {facing}. Next to it, you see {_list(beside)}."


def inventory(game: CompiledGame, state: WorldState) -> str:
    """Return the answer to `inventory`."""
    if state.held == NOTHING:
        return "You are not carrying anything."
    return f"You are carrying: a {game.objects[state.held]}."


def examine_receptacle(game: CompiledGame, state: WorldState, receptacle: int) -> str:
    """Return the answer to `examine (receptacle)`, which also follows going there and opening."""
    name = game.receptacles[receptacle]
    if receptacle not in game.openable:
        return f"On the {name}, you see {_contents(game, state, receptacle)}."
    if receptacle not in state.opened:
        return f"The {name} is closed."
    return f"The {name} is open. In it, you see {_contents(game, state, receptacle)}."


def examine_object(game: CompiledGame, state: WorldState, number: int) -> str:
    """Return the answer to `examine (object)`."""
    name = game.objects[number]
    if number in game.insides:
        inside = _list(game.objects[inner] for inner in game.insides[number])
        return f"This is a normal {name}. In it, you see {inside}."
    clean, hot, cool = number in state.clean, number in state.hot, number in state.cool
    if clean or hot or cool:
        sliced = number in state.sliced
        # A temperature alone is "cold", in company it is "cool".
        temperature = "hot" if hot else ("cool" if clean or sliced else "cold") if cool else ""
        qualities = " and ".join(filter(None, (temperature, "clean" if clean else "")))
        return f"This is a {qualities}{' sliced' if sliced else ''} {name}."
    if number in game.toggleable and number in state.toggled:
        return f"This {name} is on."
    if number in game.sliceable and number in state.sliced:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


def _response(game: CompiledGame, state: WorldState, action: GroundAction) -> str:
    return RESPONSES[action.name].format(
        o=_name(game.objects, action.object),
        r=_name(game.receptacles, action.receptacle),
        held=_name(game.objects, state.held),
    )


def _name(names: tuple[str, ...], number: int) -> str:
    return "" if number == NOTHING else names[number]


def _middle_of_room(around: str) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {around}."


def _contents(game: CompiledGame, state: WorldState, receptacle: int) -> str:
    return _list(game.objects[number] for number in sorted(state.contents[receptacle]))


def _list(names: Iterable[str]) -> str:
    """Return a list such as `a mug 1, a pen 2, and a plate 1`."""
    return _join([f"a {name}" for name in names]) or "nothing"


def _join(items: list[str]) -> str:
    return f"{', '.join(items[:-1])}, and {items[-1]}" if len(items) > 1 else "".join(items)
