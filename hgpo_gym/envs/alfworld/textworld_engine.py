"""ALFWorld's own engine: TextWorld's interpreter of PDDL games, with alfworld's names for things and its expert.

An engine keeps a private copy of Fast Downward's library (34 MB of the temporary folder, unlinked but held until the
process ends) and about 3 MB of memory. Loading a game takes 0.3 to 0.8 s by the size of the room, a reset as much, a
step 40 ms. TextWorld's text generator evaluates expressions of a game's grammar as Python code: a game is trusted like
a program. The translator redirects `sys.stdout` and the expert draws from Python's global generator, so engines work
one at a time, whatever the threads.
"""

import functools
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from hgpo_gym.envs.alfworld.engine import GameState
from hgpo_gym.envs.alfworld.games.files import read_game, read_trajectory
from hgpo_gym.envs.turns import ONE_AT_A_TIME
from hgpo_gym.extras import requires_extra

with requires_extra("alfworld", "ALFWorld's engine"):
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from alfworld.agents.expert import HandCodedAgentFailed, HandCodedAgentTimeout, HandCodedTWAgent
    from textworld import EnvInfos
    from textworld.envs.pddl import PddlEnv, textgen


def _derive(symbol: Any, context: Any = None) -> list[Any]:
    """Return the value of a grammar's expression. TextWorld 1.7 writes the variables to `locals()`, which Python 3.13
    does not read."""
    context = context or symbol.context
    variables = {"self": symbol, "context": context, **context["variables"]}
    return [textgen.TerminalSymbol(eval(symbol.expression, vars(textgen), variables))]


textgen.EvalSymbol.derive = _derive

P = ParamSpec("P")
T = TypeVar("T")

# A library copy cannot be unloaded: all copies share one registry, whose entries would dangle and crash the
# interpreter at its exit. So a closed engine leaves its game environment here for the next engine.
_idle_environments: list[AlfredDemangler] = []


def _alone(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method so that no other engine works during a call."""

    @functools.wraps(method)
    def alone(*arguments: P.args, **options: P.kwargs) -> T:
        with ONE_AT_A_TIME:
            return method(*arguments, **options)

    return alone


class TextWorldEngine:
    """The `GameEngine` that alfworld itself uses.

    Args:
        expert: follow the game with alfworld's hand-coded expert, which needs the facts of every state.
    """

    @_alone
    def __init__(self, *, expert: bool = False):
        self._env: Any = _idle_environments.pop() if _idle_environments else AlfredDemangler(PddlEnv(EnvInfos()))
        self._env.unwrapped.request_infos.facts = expert
        self._expert = _Expert() if expert else None
        self._release = weakref.finalize(self, _idle_environments.append, self._env)
        self._release.atexit = False
        self._file: Path | None = None
        self._commands: tuple[str, ...] = ()

    @_alone
    def load(self, game_file: Path) -> None:
        """Read a `game.tw-pddl` file. Raises `ValueError` naming the file if it is not a valid game."""
        env = self._open_env()
        self._file = None
        content = read_game(game_file)
        if self._expert:
            read_trajectory(game_file)
        with _invalid_game_named(game_file), _restored_arguments():
            env.load(content)
        self._file = game_file

    @_alone
    def reset(self) -> GameState:
        """Put the loaded game in its initial state."""
        env = self._open_env()
        assert self._file is not None
        with _invalid_game_named(self._file), _restored_arguments():
            state = env.reset()
            if self._expert:  # it reads the trajectory's file for itself
                self._expert.reset(self._file, state)
        self._commands = ()
        return _game_state(state)

    @_alone
    def step(self, command: str) -> GameState:
        """Send one command. TextWorld ignores white space around it; anything else must match a command exactly."""
        state, _, _ = self._open_env().step(command)
        if self._expert:
            self._expert.observe(state, command)
        self._commands += (command,)
        return _game_state(state)

    def snapshot(self) -> tuple[str, ...]:
        """Return the commands since the reset: TextWorld's own state cannot be set."""
        return self._commands

    def restore(self, snapshot: tuple[str, ...]) -> None:
        """Play the commands again from the start: as slow as they were the first time."""
        self.reset()
        for command in snapshot:
            self.step(command)

    def expert_command(self) -> str:
        """Return the next command of alfworld's expert; `look` if it has no admissible advice."""
        assert self._expert is not None
        return self._expert.command

    def close(self) -> None:
        """Hand the game environment back for the next engine. May be called twice."""
        self._release()
        self._env = None

    def _open_env(self) -> Any:
        if self._env is None:
            raise RuntimeError("This engine is closed: make a new one.")
        return self._env


class _Expert:
    """alfworld's hand-coded expert, called as alfworld's `AlfredExpert` calls it, except that it never raises.

    The expert draws from Python's global random generator. Here it gets a separate stream, the same in every episode.
    """

    max_steps = 200
    """Steps of an episode after which the expert gives up, as in alfworld."""

    def __init__(self) -> None:
        self._agent = HandCodedTWAgent(max_steps=self.max_steps)
        self._random_state = random.Random(0).getstate()
        self.command = "look"

    def reset(self, game_file: Path, state: Any) -> None:
        self._random_state = random.Random(0).getstate()
        self._agent.reset(str(game_file))
        self._agent.observe(state["feedback"])
        self.command = "look"

    def observe(self, state: Any, last_command: str) -> None:
        self.command = "look"
        if not last_command.strip():
            # The expert cannot read an empty command; alfworld lets it read the feedback instead.
            self._agent.observe(state["feedback"])
            return
        advice = self._advice(state, last_command)
        if advice in state["admissible_commands"]:
            self.command = advice

    def _advice(self, state: Any, last_command: str) -> str:
        outside = random.getstate()
        random.setstate(self._random_state)
        try:
            return self._agent.act(state, 0, state["won"], last_command)
        except (HandCodedAgentTimeout, HandCodedAgentFailed, LookupError):
            # LookupError: the agent strayed so far that the expert's notes lack what it looks for.
            return "look"
        finally:
            self._random_state = random.getstate()
            random.setstate(outside)


def _game_state(state: Any) -> GameState:
    return GameState(state["feedback"], tuple(state["admissible_commands"]), bool(state["won"]))


@contextmanager
def _invalid_game_named(file: Path) -> Iterator[None]:
    """Raise an error that names the file. The parsers below raise many kinds of errors, SystemExit included."""
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"TextWorld cannot play {file}: {reason}. Restore it with 'hgpo-gym data alfworld'."
        ) from error


@contextmanager
def _restored_arguments() -> Iterator[None]:
    """Restore `sys.argv`, which the translator overwrites."""
    arguments = sys.argv
    try:
        yield
    finally:
        sys.argv = arguments
