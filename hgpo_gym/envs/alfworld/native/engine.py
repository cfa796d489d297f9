"""The native engine: plays ALFWorld games in memory, in the words of TextWorld."""

from pathlib import Path

from hgpo_gym.envs.alfworld.engine import GameState
from hgpo_gym.envs.alfworld.native import rules, text
from hgpo_gym.envs.alfworld.native.compiled_games import compiled_games, default_directory
from hgpo_gym.envs.alfworld.native.game import CompiledGame, GroundAction, WorldState
from hgpo_gym.envs.alfworld.native.planner import shortest_plan


class NativeEngine:
    """An `GameEngine` that simulates the ALFRED domain itself.

    All that an agent sees (texts, admissible commands and their order, success) equals what TextWorld says of the
    same game file: `benchmarks/alfworld_parity.py` compares them.

    Args:
        cache: directory of compiled games; by default `alfworld` in the user's cache directory or HGPO_GYM_CACHE.
    """

    _state: WorldState
    _commands: dict[str, GroundAction]
    _admissible: tuple[str, ...]
    _won: bool

    def __init__(self, cache: Path | None = None):
        self._games = compiled_games(cache or default_directory())
        self._game: CompiledGame | None = None
        self._plan: dict[WorldState, str] = {}

    @property
    def game(self) -> CompiledGame:
        """Return the loaded game. Raises RuntimeError if no game is loaded."""
        if self._game is None:
            raise RuntimeError("No game is loaded: call load(game_file) first.")
        return self._game

    def load(self, game_file: Path) -> None:
        """Read a `game.tw-pddl`; the first time, compile it.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a valid game.
            UnknownGameRules: TextWorld may be able to play it, but this engine does not know its rules.
        """
        self._game = None  # a game that cannot be loaded does not leave the last one in its place
        self._game = self._games.get(game_file)
        self._plan = {}
        self.restore(self._game.initial)

    def reset(self) -> GameState:
        """Put the game in its initial state."""
        self.restore(self.game.initial)
        return self._report(text.opening(self.game, self._state))

    def step(self, command: str) -> GameState:
        """Send one command. White space around it does not count; otherwise it must be admissible to the letter."""
        game = self.game
        action = self._commands.get(command.strip())
        if action is None:
            return self._report(text.NOTHING_HAPPENS)
        state = rules.apply(game, self._state, action)
        if state is not self._state:
            self.restore(state)
        return self._report(text.feedback(game, state, action))

    def expert_command(self) -> str:
        """Return the first command of a shortest solution; `look` if there is none or the task is done."""
        if self._state not in self._plan:
            self._plan = self._follow(shortest_plan(self.game, self._state) or [])
        return self._plan.get(self._state, "look")

    def snapshot(self) -> WorldState:
        """Return the current state: an immutable value for `restore`, also in another engine with this game."""
        return self._state

    def restore(self, snapshot: WorldState) -> None:
        """Return to a state of the loaded game."""
        self._state = snapshot
        self._commands = rules.commands(self.game, snapshot)
        self._admissible = tuple(sorted(self._commands))
        self._won = rules.is_won(self.game, snapshot)

    def close(self) -> None:
        """Release the game. May be called twice."""
        self._game = None

    def _report(self, feedback: str) -> GameState:
        return GameState(feedback, self._admissible, self._won)

    def _follow(self, plan: list[str]) -> dict[WorldState, str]:
        """Yield the states that a plan passes through, and its command in each."""
        state, found = self._state, {}
        for command in plan:
            found[state] = command
            state = rules.apply(self.game, state, rules.commands(self.game, state)[command])
        return found
