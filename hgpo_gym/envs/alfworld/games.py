"""Finds and reads ALFWorld's games.

A split is laid out as `json_2.1.1/<split>/<task>/<trial>/{game.tw-pddl, traj_data.json}` (`hgpo-gym data alfworld`).
Its games are those that alfworld itself plays (`AlfredTWEnv.collect_game_files`): with a `game.tw-pddl` that was found
solvable, of one of six task types, neither of movable receptacles nor of sliced objects.
"""

import contextlib
import functools
import hashlib
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hgpo_gym.envs.alfworld import index
from hgpo_gym.envs.alfworld.generated import GENERATED_SPLITS, generated_folder
from hgpo_gym.files import source_digest
from hgpo_gym.suggest import unknown_name

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
TASK_MARKER = "Your task is to: "
"""What stands before the instruction in a game's opening text, and in its grammar."""

GAME_FILE = "game.tw-pddl"
TRAJECTORY_FILE = "traj_data.json"
VERSION_FOLDER = "json_2.1.1"


class UnsoundGameError(ValueError):
    """A game's files are not what they should be: `file` is which, `reason` is why."""

    def __init__(self, file: Path, reason: str):
        super().__init__(file, reason)  # all of them, for the way back from a worker process
        self.file, self.reason = file, reason

    def __str__(self) -> str:
        remedy = "Remove its folder, or restore it with 'hgpo-gym data alfworld'."
        return f"{self.file} is not a sound ALFWorld game: {self.reason}. {remedy}"


@dataclass(frozen=True, slots=True)
class Game:
    """One task: its id, its kind and the file that holds it."""

    task_id: str
    task_type: str
    file: Path


@dataclass(frozen=True, slots=True, eq=False)
class GameCatalogue:
    """The games of a split, immutable, in the order of their ids. All environments of a process share it.

    Attributes:
        split: its name; of several that were asked for, the one that was found.
        games: a game for each task id.
        task_ids: the keys of `games`.
    """

    split: str
    games: Mapping[str, Game]
    task_ids: tuple[str, ...]

    @classmethod
    def of(cls, split: str, games: Iterable[Game]) -> "GameCatalogue":
        by_id = {game.task_id: game for game in sorted(games, key=lambda game: (game.task_id, game.file))}
        return cls(split, MappingProxyType(by_id), tuple(by_id))


def find_games(
    data: str | os.PathLike[str] | None = None,
    split: str | Sequence[str] = "train",
    task_types: Sequence[str] | None = None,
) -> GameCatalogue:
    """The games of a split. Reads those that are new or changed since the last time; later calls share the answer.

    A task id is made of the game's content: `<task type>-<object>-<target>-<digest>`, where the digest is the first 12
    hexadecimal digits of SHA-256 over `pddl_problem` and `grammar`. Identical copies of a game are one task.

    Args:
        data: the folder that holds `json_2.1.1`, or the one that holds `<split>`, or itself a folder of games; these
            are then the split, unless the folder bears the name of another standard split. None: $ALFWORLD_DATA, else
            ~/.cache/alfworld.
        split: `train`, `valid_seen`, `valid_unseen`, `valid_train` or any other folder beside them; `generated` or
            `generated_test`, which need no `data`; or several joined by `+`. Of a list, the first that has games, where
            generated ones stand in only if no place of data is given.
        task_types: which of `TASK_TYPES` to keep; None keeps all.

    Raises:
        FileNotFoundError: there are no games.
        ValueError: an unknown split or task type, a game that is not sound, or none that passes the filters.
    """
    chosen = _checked_task_types(task_types)
    root, names = data_root(data), [split] if isinstance(split, str) else list(split)
    if data is not None or os.environ.get("ALFWORLD_DATA"):
        names = [name for name in names if name not in GENERATED_SPLITS] or names
    for name in names[:-1]:
        with contextlib.suppress(FileNotFoundError):
            return _catalogue(name, _folders(root, name), chosen)
    if len(names) > 1 and names[-1] in GENERATED_SPLITS:
        warnings.warn(
            f"There are no ALFWorld games in {root}: playing generated ones (env.split={names[-1]}). "
            "Run 'hgpo-gym data alfworld' for the real ones.",
            stacklevel=2,
        )
    return _catalogue(names[-1], _folders(root, names[-1]), chosen)


def data_root(data: str | os.PathLike[str] | None) -> Path:
    """The folder that `data` names; where it is None, $ALFWORLD_DATA, else ~/.cache/alfworld."""
    root = Path(data if data is not None else os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld")
    return root.expanduser().resolve()


def read_game(file: Path) -> dict[str, Any]:
    """The content of a `game.tw-pddl` file: `pddl_domain`, `pddl_problem`, `grammar`, `solvable` and others.

    Raises:
        UnsoundGameError: it is not a sound game, as far as its text can tell.
    """
    game = _read_json(file)
    for key in ("pddl_domain", "pddl_problem", "grammar"):
        if not isinstance(game.get(key), str):
            raise UnsoundGameError(file, f"it has no text {key!r}")
    problem = game["pddl_problem"]
    if "(:goal" not in problem or problem.count("(") != problem.count(")"):
        raise UnsoundGameError(file, "its 'pddl_problem' is not a whole PDDL problem")
    if TASK_MARKER not in game["grammar"]:
        raise UnsoundGameError(file, f"its 'grammar' has no {TASK_MARKER.strip()!r}")
    return game


def read_trajectory(game_file: Path) -> dict[str, Any]:
    """The `traj_data.json` beside a game: `task_type`, `pddl_params` (what the task is about) and others.

    Raises:
        UnsoundGameError: it is missing or not sound.
    """
    file = game_file.with_name(TRAJECTORY_FILE)
    if not file.is_file():
        raise UnsoundGameError(game_file, f"there is no {TRAJECTORY_FILE} beside it")
    trajectory = _read_json(file)
    if not isinstance(trajectory.get("task_type"), str):
        raise UnsoundGameError(file, "it has no text 'task_type'")
    params = trajectory.get("pddl_params")
    names = ("object_target", "parent_target", "toggle_target")
    if not isinstance(params, dict) or not all(isinstance(params.get(name), str) for name in names):
        raise UnsoundGameError(file, f"its 'pddl_params' must have the texts {', '.join(names)}")
    return trajectory


def game_of(file: Path) -> Game:
    """The game of one `game.tw-pddl` file, with its `traj_data.json` beside it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a sound game.
    """
    if not file.is_file():
        raise FileNotFoundError(f"There is no game file {file}: expected an ALFWorld {GAME_FILE}.")
    trajectory = read_trajectory(file)
    return Game(task_id(read_game(file), trajectory), trajectory["task_type"], file)


@functools.cache
def _catalogue(split: str, folders: tuple[Path, ...], task_types: tuple[str, ...]) -> GameCatalogue:
    every = [game for folder in folders for game in _list_games(folder)]
    kept = [game for game in every if game.task_type in task_types]
    if not kept:
        present = Counter(game.task_type for game in every)
        raise ValueError(
            f"No game of {split!r} has the task type {' or '.join(task_types)}; there are {dict(present)}."
        )
    return GameCatalogue.of(split, kept)


@functools.cache
def _list_games(folder: Path) -> list[Game]:
    groups = [(file, file.with_name(TRAJECTORY_FILE)) for file in game_files(folder)]
    code = source_digest(sys.modules[__name__])
    found = index.look_up(folder, groups, lambda file: examine_game(file, folder), code=code)
    games = [Game(file=file, **about) for file, about in found.items() if "skipped" not in about]
    if not games:
        skipped = Counter(about["skipped"] for about in found.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise ValueError(f"No game in {folder} can be played: {reasons}. alfworld would skip them too.")
    return games


def examine_game(file: Path, folder: Path) -> dict[str, str]:
    """Read a game that lies below `folder`: its `task_id` and `task_type`, or why it is `skipped`.

    Raises:
        UnsoundGameError: the game is not sound.
    """
    place = str(file.parent.relative_to(folder))
    if "movable" in place or "Sliced" in place:
        return {"skipped": "movable receptacles or sliced objects"}
    trajectory = read_trajectory(file)
    if trajectory["task_type"] not in TASK_TYPES:
        return {"skipped": "other task types"}
    content = read_game(file)
    if not content.get("solvable"):
        return {"skipped": "not marked solvable"}
    return {"task_id": task_id(content, trajectory), "task_type": trajectory["task_type"]}


def game_files(folder: Path) -> list[Path]:
    """Every `game.tw-pddl` below a folder, in the order of their paths."""
    return sorted(Path(place, GAME_FILE) for place, _, names in os.walk(folder) if GAME_FILE in names)


def task_id(content: Mapping[str, Any], trajectory: Mapping[str, Any]) -> str:
    """The id of a game with these contents of its two files; `find_games` says what it is made of."""
    params = trajectory["pddl_params"]
    about = [trajectory["task_type"], params["object_target"], params["parent_target"] or params["toggle_target"]]
    text = content["pddl_problem"] + content["grammar"]
    # JSON may hold lone surrogates, which plain UTF-8 refuses.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return "-".join([*about, digest])


def _folders(root: Path, split: str) -> tuple[Path, ...]:
    return tuple(_split_folder(root, part) for part in split.split("+"))


def _split_folder(root: Path, split: str) -> Path:
    """The folder of the split's games, below `root` unless they are generated; it holds at least one."""
    if split in GENERATED_SPLITS:
        return generated_folder(split)
    base = root / VERSION_FOLDER if (root / VERSION_FOLDER).is_dir() else root
    folder = base / split
    if split and folder.is_dir():
        if _has_games(folder):
            return folder
    elif base == root and _is_folder_of_games(root):
        if root.name in SPLITS and root.name != split:
            raise ValueError(f"{root} holds the split {root.name!r}, not {split!r}: set env.split, or env.data.")
        return root
    elif split not in SPLITS and base.is_dir():
        present = sorted(entry.name for entry in base.iterdir() if entry.is_dir())
        if present:
            raise ValueError(f"{unknown_name('split', split, present)} (The folders in {base}.)")
    raise FileNotFoundError(
        f"ALFWorld games not found in {root}: expected **/{GAME_FILE} under {split}. Run 'hgpo-gym data alfworld', or "
        f"set env.data (or $ALFWORLD_DATA) to the folder that holds {VERSION_FOLDER}; or play generated games: "
        f"{' or '.join(f'env.split={name}' for name in GENERATED_SPLITS)}."
    )


def _has_games(folder: Path) -> bool:
    return any(GAME_FILE in names for _, _, names in os.walk(folder))


def _is_folder_of_games(folder: Path) -> bool:
    # Two levels at most: a folder of splits has its games three levels below.
    return any(next(folder.glob(pattern), None) for pattern in (GAME_FILE, f"*/{GAME_FILE}", f"*/*/{GAME_FILE}"))


def _checked_task_types(task_types: Sequence[str] | None) -> tuple[str, ...]:
    if task_types is None:
        return TASK_TYPES
    names = [task_types] if isinstance(task_types, str) else list(task_types)
    for name in names:
        if name not in TASK_TYPES:
            raise ValueError(unknown_name("ALFWorld task type", name, TASK_TYPES))
    if not names:
        raise ValueError(f"env.task_types is empty: leave it out for all, or name some of {', '.join(TASK_TYPES)}.")
    return tuple(name for name in TASK_TYPES if name in names)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise UnsoundGameError(file, f"it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise UnsoundGameError(file, f"it holds a JSON {type(content).__name__}, not an object")
    return content
