"""TextWorldEnv: games made by TextWorld's `tw-make`.

A game is a file `.z8`, played by the interpreter of jericho, with the `.json` that tw-make writes beside it. The
`.json` alone holds the logic of a game, but no prose: observations are then facts about the player's surroundings.
Neither runs Python code. A C interpreter runs a `.z8`, so use games only from sources that you trust. TextWorld has no
interpreter of `.ulx` any more: of such a game the `.json` is played, with a warning.
"""

import hashlib
import re
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, hashed, in_split
from hgpo_gym.envs.turns import ONE_AT_A_TIME
from hgpo_gym.extras import requires_extra
from hgpo_gym.suggest import option

with requires_extra("textworld", "TextWorldEnv"):
    import textworld
    from textworld.core import GameState

Reward = Literal["success", "score"]
REQUESTED_INFOS = ("admissible_commands", "won", "lost", "score", "objective", "description")


class TextWorldEnv(TextEnv):
    """`hgpo_gym/TextWorld-v0`: any games of TextWorld.

    A task id is made from the content of the game's `.json`. The admissible actions are TextWorld's; only they are sent
    to the game.

    Args:
        games: a folder of games, or files `.z8` or `.json`. In a folder a `.json` that has a `.z8` is not a game again,
            and one that is no game is left out.
        split: `all`, or `test` (a third of the games, by a hash of their content) or `train` (the others).
        reward: `success` (10 on winning, else 0) or `score` (the points that the game gives).
        expert: put the next action of TextWorld's shortest way into `info["expert_action"]`; empty where there is none.
        render_mode: `ansi` or None.

    Raises:
        FileNotFoundError: no games there, or a `.z8` without its `.json`.
        ValueError: an option that does not exist, an empty split, or a file that is no game or of an older TextWorld.
    """

    def __init__(
        self,
        *,
        games: str | Path | Sequence[str | Path],
        split: Split = "all",
        reward: Reward = "success",
        expert: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        self.split, self.texts_key = split, f"textworld {version('textworld')}"
        self._reward, self._expert = reward, expert
        found = {_task_id(file): file for file in _game_files(games)}
        self._files = {task: found[task] for task in sorted(found) if in_split(split, hashed(task))}
        if not self._files:
            raise ValueError(
                f"The split {split!r} is empty: there are {len(found)} games. Set split=all, or add games."
            )
        self.task_ids = tuple(self._files)
        self._game: Any = None
        self._file: Path | None = None

    def begin_episode(self, task_id: str) -> Turn:
        self._open(self._files[task_id])
        return self._turn(self._state.description or "", task=" ".join(self._state.objective.split()))

    def take_action(self, action: str) -> Turn:
        if action not in self._state.admissible_commands:
            return self._turn("That is not possible here.", action_valid=False)
        before = self._score
        self._send(action)
        points = float(self._score - before)
        success = SUCCESS_REWARD if self._state.won else 0.0
        return self._turn(_prose(self._state.feedback), reward=points if self._reward == "score" else success)

    def save_state(self) -> tuple[Path, tuple[str, ...]]:
        """Return the game and the commands sent to it. `load_state` sends them again."""
        if self._file is None:
            raise RuntimeError("There is no episode to keep: call reset() before snapshot().")
        return self._file, tuple(self._sent)

    def load_state(self, state: tuple[Path, tuple[str, ...]]) -> None:
        file, commands = state
        self._open(file)
        for command in commands:
            self._send(command)

    def _open(self, file: Path) -> None:
        with ONE_AT_A_TIME:
            if file != self._file:
                self.close()
                request_infos = textworld.EnvInfos(
                    **dict.fromkeys(REQUESTED_INFOS, True), facts=file.suffix == ".json", policy_commands=self._expert
                )
                self._game, self._file = _start(file, request_infos), file
            self._state: GameState = self._game.reset()
        self._score = 0
        self._sent: list[str] = []

    def _send(self, command: str) -> None:
        with ONE_AT_A_TIME:
            self._state, self._score, _ = self._game.step(command)
        self._sent.append(command)

    def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = self._file = None

    def _turn(self, text: str, **turn_fields: Any) -> Turn:
        state = self._state
        is_over = bool(state.won or state.lost)
        if self._file is not None and self._file.suffix == ".json":
            text = facts_around(state.facts)
        return Turn(
            text,
            admissible_actions=() if is_over else tuple(state.admissible_commands),
            terminated=is_over,
            won=bool(state.won),
            extras={"expert_action": next(iter(state.policy_commands), "")} if self._expert else {},
            **turn_fields,
        )


def facts_around(facts: Sequence[Any]) -> str:
    """Return the facts around the player, in the words of TextWorld's logic: `open(box); in(key, box); on(note,
    table)`."""
    names = [(fact.name, [_name(argument) for argument in fact.arguments]) for fact in facts]
    room = next(place for name, (subject, *place) in names if name == "at" and subject == "you")[0]
    closed = {terms[0] for name, terms in names if name in ("closed", "locked")}
    near = {"you", "inventory", room}
    for _ in range(2):  # what is in the room, then what is in or on that
        near |= {
            terms[0]
            for name, terms in names
            if name in ("at", "in", "on") and terms[1] in near and terms[1] not in closed
        }
    nearby = {f"{name}({', '.join(terms)})" for name, terms in names if room in terms or near.issuperset(terms)}
    return "; ".join(sorted(nearby))


def _name(argument: Any) -> str:
    return {"P": "you", "I": "inventory"}.get(argument.type, argument.name)


def _prose(feedback: str) -> str:
    """Return the game's feedback without its prompt and status line."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"\n>.*", "", feedback, flags=re.DOTALL)).strip()


def _start(file: Path, request_infos: Any) -> Any:
    try:
        return textworld.start(str(file), request_infos)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # whatever its reader stumbles over
        raise ValueError(
            f"TextWorld {version('textworld')} cannot read the game {file}: {type(error).__name__}: {error}. Make it "
            "again with 'tw-make', or remove it."
        ) from error


def _game_files(games: str | Path | Sequence[str | Path]) -> list[Path]:
    files: list[Path] = []
    for place in [games] if isinstance(games, str | Path) else games:
        path = Path(place).expanduser()
        if path.is_dir():
            files += sorted(path.rglob("*.z8"))
            json_files = [file for file in sorted(path.rglob("*.json")) if not file.with_suffix(".z8").exists()]
            json_files = list(filter(_is_game, json_files))
            if older := [file for file in json_files if file.with_suffix(".ulx").exists()]:
                warnings.warn(
                    f"{len(older)} games in {path} have their prose in .ulx files, which TextWorld does not play any "
                    f"more: they are played without it, as facts. {_COMPILE}",
                    stacklevel=3,
                )
            files += json_files
        else:
            files.append(path)
    for file in files or [Path(str(games))]:
        if file.suffix == ".ulx":
            raise ValueError(f"{file}: TextWorld does not play .ulx files any more. {_COMPILE}")
        logic = file.with_suffix(".json")
        if not logic.is_file():
            raise FileNotFoundError(
                f"TextWorld games not found in {file}: expected files .z8, each with its .json. "
                f"Make one by 'tw-make custom --output games/one.z8', or set {option('games')}."
            )
        if not _is_game(logic):
            raise ValueError(f"{logic} is not what tw-make writes of a game: leave it out, or give the folder.")
    return files


_COMPILE = "Compile each .json to a .z8 beside it: see docs/environments/textworld.md, 'Older games'."


def _is_game(file: Path) -> bool:
    """Return whether a `.json` holds a game, by the keys that each game has. Parsing thousands of files would be
    slow."""
    content = file.read_bytes()
    return all(word in content for word in (b'"KB"', b'"world"', b'"quests"'))


def _task_id(file: Path) -> str:
    return "game-" + hashlib.sha256(file.with_suffix(".json").read_bytes()).hexdigest()[:16]
