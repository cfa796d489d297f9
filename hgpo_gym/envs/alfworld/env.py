"""ALFWorld: household tasks in text (Shridhar et al., ICLR 2021), on the games of the alfworld package."""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from hgpo_gym.envs.alfworld.engine import GameEngine, GameState
from hgpo_gym.envs.alfworld.experts.explorer import Explorer
from hgpo_gym.envs.alfworld.games.files import TASK_MARKER
from hgpo_gym.envs.alfworld.milestones import Milestones
from hgpo_gym.envs.alfworld.native.fingerprint import UnknownGameRules
from hgpo_gym.envs.alfworld.splits import Game, find_games, game_of
from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD
from hgpo_gym.option_checks import OneOf
from hgpo_gym.suggest import option


def _textworld(hand_coded: bool) -> GameEngine:
    from hgpo_gym.envs.alfworld.textworld_engine import TextWorldEngine

    return TextWorldEngine(expert=hand_coded)


def _native(hand_coded: bool) -> GameEngine:  # noqa: ARG001 - its planner works only when asked
    from hgpo_gym.envs.alfworld.native.engine import NativeEngine

    return NativeEngine()


ENGINES: dict[str, Callable[[bool], GameEngine]] = {"textworld": _textworld, "native": _native}
"""Engines by name. A value takes whether alfworld's hand-coded expert is needed, and imports what it needs."""

EXPERT_POLICIES = {"explorer": tuple(ENGINES), "planner": ("native",), "hand_coded": ("textworld",)}
"""Experts by name, with the engines that support them."""


class _State(NamedTuple):
    """State of a game. It keeps `admissible` because TextWorld would have to compute it again."""

    game: Game
    engine: Any
    admissible: tuple[str, ...]
    explorer: Explorer | None
    milestones: Milestones | None


class ALFWorldEnv(TextEnv):
    """One household, one task: find things, clean, heat, cool or light them, put them somewhere.

    Observations are the engine's, unchanged. The reward is 10 on success, which ends the episode, else 0. White space
    around an action is ignored. An action that is not admissible gives "Nothing happens.". `reset(options={"game_file":
    path})` plays a game of your own, in any split.

    Args:
        data: the folder of the games; see `splits.find_games`. None: $ALFWORLD_DATA, else ~/.cache/alfworld.
        split: `train`, `valid_seen`, `valid_unseen`, `valid_train` or another folder beside them; `generated` or
            `generated_test`, which need no data; or several joined by `+`. Of a list, the first that has games.
        task_types: names of the task types to play (`files.TASK_TYPES`); None plays all six.
        engine: `native`, or alfworld's own `textworld`, which gives the same texts thousands of times more slowly. Only
            `textworld` plays a game with rules that `native` does not know. It runs expressions of a game's grammar as
            Python code: choose it only for games that you would run as a program.
        expert: put the next action of an expert in `info["expert_action"]`.
        expert_policy: `explorer` knows only what it has seen, as an agent does (`explorer.Explorer`). `planner` knows
            the whole state and follows a shortest solution, with the engine `native`. `hand_coded` is alfworld's own,
            with the engine `textworld`.
        milestones: put into `info["milestone"]` whether the action reached the next subgoal of the task, such as taking
            the object; see `milestones.Milestones`.
        render_mode: None or `ansi`.

    Raises:
        FileNotFoundError: there are no games.
        ModuleNotFoundError: the engine's packages are missing.
        ValueError: an unknown option, a game that is damaged, or one that the native engine does not know.
    """

    reset_options = frozenset({"task_id", "game_file"})

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        split: str | Sequence[str] = "train",
        task_types: Sequence[str] | None = None,
        engine: Annotated[str, OneOf(ENGINES)] = "native",
        expert: bool = False,
        expert_policy: Annotated[str, OneOf(EXPERT_POLICIES)] = "explorer",
        milestones: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        if expert and engine not in EXPERT_POLICIES[expert_policy]:
            needed = " or ".join(EXPERT_POLICIES[expert_policy])
            raise ValueError(
                f"The expert {expert_policy!r} needs engine={needed!r}, not {engine!r}: set that, or "
                "expert_policy='explorer', which works with both."
            )
        self._catalogue = find_games(data, split, task_types)
        self.split, self.task_ids = self._catalogue.split, self._catalogue.task_ids
        self._expert_policy = expert_policy if expert else ""
        self._explorer = Explorer() if self._expert_policy == "explorer" else None
        self._has_milestones = milestones
        self._milestones: Milestones | None = None
        self._engine_name = engine
        self._engines: dict[str, GameEngine] = {}
        self._engine = self._get_engine(engine)
        self._game: Game | None = None
        self._guest: Game | None = None
        self._admissible: tuple[str, ...] = ()

    def task_type(self, task_id: str) -> str:
        """One of `files.TASK_TYPES`."""
        return self._find(task_id).task_type

    def choose_task(self, options: Mapping[str, Any]) -> str:
        """Also takes `game_file`, the path of a `game.tw-pddl` with its `traj_data.json` beside it."""
        if "game_file" not in options:
            return super().choose_task(options)
        if "task_id" in options:
            raise ValueError("reset options 'task_id' and 'game_file' both name a task: give one of them.")
        self._guest = game_of(Path(options["game_file"]))
        return self._guest.task_id

    def begin_episode(self, task_id: str) -> Turn:
        """Load the task's game, unless it is the one just played, and open it."""
        self._load(self._find(task_id))
        state = self._engine.reset()
        if self._explorer:
            self._explorer.begin(state.feedback, state.admissible_commands)
        task = state.feedback.partition(TASK_MARKER)[2].strip()
        self._milestones = Milestones.of(task) if self._has_milestones else None
        return self._turn(state, task=task)

    def take_action(self, action: str) -> Turn:
        """Send the action, without white space around it, to the engine."""
        command = action.strip()
        valid = command in self._admissible
        state = self._engine.step(command)
        if self._explorer:
            self._explorer.observe(state.feedback, state.admissible_commands)
        before = self._milestones
        if before:
            self._milestones = before.after(state.feedback, state.won)
        return self._turn(
            state,
            milestone=self._milestones != before,
            reward=SUCCESS_REWARD if state.won else 0.0,
            terminated=state.won,
            action_valid=valid,
        )

    def save_state(self) -> _State:
        """Return the state. The engine `textworld` restores it by playing the episode's commands again."""
        if self._game is None:
            raise RuntimeError("There is no episode to keep: call reset() before snapshot().")
        return _State(
            self._game, self._engine.snapshot(), self._admissible, copy.deepcopy(self._explorer), self._milestones
        )

    def load_state(self, state: _State) -> None:
        self._guest = state.game
        self._load(state.game)
        self._engine.restore(state.engine)
        self._admissible, self._explorer = state.admissible, copy.deepcopy(state.explorer)
        self._milestones = state.milestones

    def close(self) -> None:
        """Release the engines. May be called twice."""
        for engine in self._engines.values():
            engine.close()
        super().close()

    def _find(self, task_id: str) -> Game:
        if self._guest is not None and task_id == self._guest.task_id:
            return self._guest
        return self._catalogue.games[task_id]

    def _load(self, game: Game) -> None:
        if game == self._game:
            return
        self._game = None  # a game that cannot be loaded does not leave the last one in its place
        self._engine = self._get_engine(self._engine_name)
        try:
            self._engine.load(game.file)
        except UnknownGameRules as error:
            also = ", and expert_policy='explorer'" if self._expert_policy == "planner" else ""
            raise ValueError(
                f"{error} TextWorld may play it, but runs expressions of its grammar as Python code, with your rights: "
                f"if you trust it like a program, set {option('engine', 'textworld')}{also}."
            ) from error
        self._game = game

    def _get_engine(self, name: str) -> GameEngine:
        if name not in self._engines:
            self._engines[name] = ENGINES[name](self._expert_policy == "hand_coded")
        return self._engines[name]

    def _advice(self) -> str:
        return self._explorer.advise() if self._explorer else self._engine.expert_command()

    def _turn(self, state: GameState, *, milestone: bool = False, **fields: Any) -> Turn:
        self._admissible = state.admissible_commands
        extras: dict[str, Any] = {"expert_action": self._advice()} if self._expert_policy else {}
        if self._milestones:
            extras["milestone"] = milestone
        return Turn(
            state.feedback, admissible_actions=state.admissible_commands, won=state.won, extras=extras, **fields
        )
