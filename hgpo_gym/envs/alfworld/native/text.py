"""What the game says: the text grammar of ALFWorld (`alfred.twl2`), one function a rule.

`state` is the state after the action that the text answers. Oddities of the original are kept; comments name them.
"""

from collections.abc import Callable, Iterable

from hgpo_gym.envs.alfworld.native.game import NOTHING, Action, CompiledGame, State

NOTHING_HAPPENS = "Nothing happens."
"""The answer to a command that does not apply."""

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


def opening(game: CompiledGame, state: State) -> str:
    """The text that a game starts with."""
    if game.receptacles_at[state.location]:
        around = look(game, state)
    else:
        placed = (name for name, at in zip(game.receptacles, game.location_of, strict=True) if at != NOTHING)
        around = _middle_of_room(_list(placed))
    return f"-= Welcome to TextWorld, ALFRED! =-\n\n{around}\n\n{game.task}"


def feedback(game: CompiledGame, state: State, action: Action) -> str:
    """The answer to a command that applied."""
    return _ANSWERS[action.name](game, state, action)


def look(game: CompiledGame, state: State) -> str:
    """The answer to `look`."""
    here = game.receptacles_at[state.location]
    if not here:
        # Unlike the opening text, `look` asks for the receptacles at the agent's own location: there are none.
        return _middle_of_room("nothing")
    facing = _join([game.receptacles[receptacle] for receptacle in here])
    # Not what lies on the floor, but what was taken from one receptacle here and moved to another one here.
    beside = [
        game.objects[number]
        for number in sorted(state.objects_at[state.location])
        for receptacle in here
        if (number, receptacle) in state.taken
    ]
    return f"You are facing the {facing}. Next to it, you see {_list(beside)}."


def inventory(game: CompiledGame, state: State) -> str:
    """The answer to `inventory`."""
    if state.held == NOTHING:
        return "You are not carrying anything."
    return f"You are carrying: a {game.objects[state.held]}."


def examine_receptacle(game: CompiledGame, state: State, receptacle: int) -> str:
    """The answer to `examine (receptacle)`, which also follows going there and opening."""
    name = game.receptacles[receptacle]
    if receptacle not in game.openable:
        return f"On the {name}, you see {_contents(game, state, receptacle)}."
    if receptacle not in state.opened:
        return f"The {name} is closed."
    return f"The {name} is open. In it, you see {_contents(game, state, receptacle)}."


def examine_object(game: CompiledGame, state: State, number: int) -> str:
    """The answer to `examine (object)`."""
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


def _toggle(game: CompiledGame, action: Action) -> str:
    return f"You turn on the {game.objects[action.object]}."  # "off" is in the grammar, but no action unsets isToggled


_ANSWERS: dict[str, Callable[[CompiledGame, State, Action], str]] = {
    "look": lambda game, state, _: look(game, state),
    "inventory": lambda game, state, _: inventory(game, state),
    "help": lambda *_: HELP,
    "examineReceptacle": lambda game, state, a: examine_receptacle(game, state, a.receptacle),
    "examineObject": lambda game, state, a: examine_object(game, state, a.object),
    "GotoLocation": lambda game, state, a: (
        f"You arrive at {game.receptacles[a.receptacle]}. {examine_receptacle(game, state, a.receptacle)}"
    ),
    "OpenObject": lambda game, state, a: (
        f"You open the {game.receptacles[a.receptacle]}. {examine_receptacle(game, state, a.receptacle)}"
    ),
    "CloseObject": lambda game, _, a: f"You close the {game.receptacles[a.receptacle]}.",
    "PickupObject": lambda game, _, a: (
        f"You pick up the {game.objects[a.object]} from the {game.receptacles[a.receptacle]}."
    ),
    "PutObject": lambda game, _, a: f"You move the {game.objects[a.object]} to the {game.receptacles[a.receptacle]}.",
    "CleanObject": lambda game, _, a: (
        f"You clean the {game.objects[a.object]} using the {game.receptacles[a.receptacle]}."
    ),
    "HeatObject": lambda game, _, a: (
        f"You heat the {game.objects[a.object]} using the {game.receptacles[a.receptacle]}."
    ),
    "CoolObject": lambda game, _, a: (
        f"You cool the {game.objects[a.object]} using the {game.receptacles[a.receptacle]}."
    ),
    "ToggleObject": lambda game, _, a: _toggle(game, a),
    "SliceObject": lambda game, state, a: (
        f"You sliced the {game.objects[a.object]} with the {game.objects[state.held]}."
    ),
}


def _middle_of_room(around: str) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {around}."


def _contents(game: CompiledGame, state: State, receptacle: int) -> str:
    return _list(game.objects[number] for number in sorted(state.contents[receptacle]))


def _list(names: Iterable[str]) -> str:
    """`a mug 1, a pen 2, and a plate 1`."""
    return _join([f"a {name}" for name in names]) or "nothing"


def _join(items: list[str]) -> str:
    return f"{', '.join(items[:-1])}, and {items[-1]}" if len(items) > 1 else "".join(items)
