"""Find the games of a split.

A split is laid out as `json_2.1.1/<split>/<task>/<trial>/{game.tw-pddl, traj_data.json}` (`hgpo-gym data alfworld`).
Its games are those that alfworld itself plays (`AlfredTWEnv.collect_game_files`): with a `game.tw-pddl` that was found
solvable, of one of six task types, neither of movable receptacles nor of sliced objects.
"""

import contextlib
import functools
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hgpo_gym.envs.alfworld.games import files, index
from hgpo_gym.envs.alfworld.games.files import (
    GAME_FILE,
    SPLITS,
    TASK_TYPES,
    TRAJECTORY_FILE,
    VERSION_FOLDER,
    examine_game,
    game_files,
    read_game,
    read_trajectory,
    task_id,
)
from hgpo_gym.envs.alfworld.generation.splits import GENERATED_SPLITS, generated_folder
from hgpo_gym.files import expand_home, source_digest
from hgpo_gym.suggest import option, unknown_name

_DEFAULT_DATA = Path("~/.cache/alfworld")
"""Default folder. Generating games imports alfworld, which sets $ALFWORLD_DATA to this folder if it is not set."""


@dataclass(frozen=True, slots=True)
class Game:
    """Task: its id, its type and its file."""

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
    """Return the games of a split. Read only new or changed files since the last time; later calls share the answer.

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
        ValueError: an unknown split or task type, a game that is damaged, or none that passes the filters.
    """
    chosen = _checked_task_types(task_types)
    root, names = data_root(data), [split] if isinstance(split, str) else list(split)
    if not names:
        raise ValueError("split is empty: name at least one.")
    if data is not None or root != Path(os.path.expanduser(_DEFAULT_DATA)).resolve():  # noqa: PTH111 - a home or not
        names = [name for name in names if name not in GENERATED_SPLITS] or names
    for name in names[:-1]:
        with contextlib.suppress(FileNotFoundError):
            return _catalogue(name, _folders(root, name), chosen)
    if len(names) > 1 and names[-1] in GENERATED_SPLITS:
        warnings.warn(
            f"There are no ALFWorld games in {root}: playing generated ones. "
            "Run 'hgpo-gym data alfworld' for the real ones.",
            stacklevel=2,
        )
    return _catalogue(names[-1], _folders(root, names[-1]), chosen)


def data_root(data: str | os.PathLike[str] | None) -> Path:
    """Return the folder that `data` names. If it is None, return $ALFWORLD_DATA, else ~/.cache/alfworld."""
    root = Path(data if data is not None else os.environ.get("ALFWORLD_DATA") or _DEFAULT_DATA)
    return expand_home(root, f"Set {option('data')}, or ALFWORLD_DATA, to the folder of the games.").resolve()


def game_of(file: Path) -> Game:
    """Return the game of one `game.tw-pddl` file, with its `traj_data.json` beside it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a valid game.
    """
    if not file.is_file():
        raise FileNotFoundError(f"There is no game file {file}: expected an ALFWorld {GAME_FILE}.")
    trajectory = read_trajectory(file)
    return Game(task_id(read_game(file), trajectory), trajectory["task_type"], file)


@functools.cache
def _catalogue(split: str, folders: tuple[Path, ...], task_types: tuple[str, ...]) -> GameCatalogue:
    all_games = [game for folder in folders for game in _list_games(folder)]
    selected = [game for game in all_games if game.task_type in task_types]
    if not selected:
        type_counts = Counter(game.task_type for game in all_games)
        raise ValueError(
            f"No game of {split!r} has the task type {' or '.join(task_types)}; there are {dict(type_counts)}."
        )
    return GameCatalogue.of(split, selected)


@functools.cache
def _list_games(folder: Path) -> list[Game]:
    groups = [(file, file.with_name(TRAJECTORY_FILE)) for file in game_files(folder)]
    code = source_digest(files)
    found = index.look_up(folder, groups, lambda file: examine_game(file, folder), code=code)
    games = [Game(file=file, **about) for file, about in found.items() if "skipped" not in about]
    if not games:
        skipped = Counter(about["skipped"] for about in found.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise ValueError(f"No game in {folder} can be played: {reasons}. alfworld would skip them too.")
    return games


def _folders(root: Path, split: str) -> tuple[Path, ...]:
    return tuple(_split_folder(root, part) for part in split.split("+"))


def _split_folder(root: Path, split: str) -> Path:
    """Return the folder of the split's games, below `root` unless they are generated. It holds at least one game."""
    if split in GENERATED_SPLITS:
        return generated_folder(split)
    base = root / VERSION_FOLDER if (root / VERSION_FOLDER).is_dir() else root
    folder = base / split
    if split and folder.is_dir():
        if _has_games(folder):
            return folder
    elif base == root and _is_folder_of_games(root):
        if root.name in SPLITS and root.name != split:
            raise ValueError(f"{root} holds the split {root.name!r}, not {split!r}: set {option('split')}, or data.")
        return root
    playable_splits = (
        sorted(entry.name for entry in base.iterdir() if _is_folder_of_games(entry)) if base.is_dir() else []
    )
    if split not in SPLITS:
        known_splits = [*(playable_splits or SPLITS), *GENERATED_SPLITS]
        raise ValueError(f"{unknown_name('split', split, known_splits)} (Folders would be in {base}.)")
    hint = f" (of {base}, {', '.join(playable_splits)} can be played)" if playable_splits else ""
    raise FileNotFoundError(
        f"ALFWorld games not found in {root}: expected **/{GAME_FILE} under {split}{hint}. "
        f"Run 'hgpo-gym data alfworld', or set {option('data')} or $ALFWORLD_DATA to the folder that holds "
        f"{VERSION_FOLDER}; or play generated games: "
        f"{' or '.join(f'split={name!r}' for name in GENERATED_SPLITS)}."
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
