"""Compiled games on disk: each game file is compiled once, by whichever process needs it first.

An entry is named after the SHA-256 of the game file; one that is damaged, or that other code compiled, is compiled
again.
"""

import functools
import hashlib
import importlib.resources
import json
import warnings
from pathlib import Path
from weakref import WeakValueDictionary

from hgpo_gym.envs.alfworld.native.compile import compile_game
from hgpo_gym.envs.alfworld.native.fingerprint import UnknownGameRules
from hgpo_gym.envs.alfworld.native.game import CompiledGame
from hgpo_gym.files import cache_dir, read_entry, write_entry

COMPILER_MODULES = ("compile.py", "fingerprint.py", "game.py", "pddl.py")


class CompiledGames:
    """Cache of compiled games. Engines that play the same game at the same time share one.

    Args:
        directory: where entries are kept; created when the first one is written.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self._in_use: WeakValueDictionary[tuple[str, int, int], CompiledGame] = WeakValueDictionary()

    def get(self, game_file: Path) -> CompiledGame:
        """Return the compiled game of a `game.tw-pddl`.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a valid game.
            UnknownGameRules: it is a game by rules that the native engine does not know.
        """
        stat = Path(game_file).stat()
        # A replaced file has another time or size, so it is compiled again.
        key = (str(game_file), stat.st_mtime_ns, stat.st_size)
        game = self._in_use.get(key)
        if game is None:
            game = self._in_use[key] = self._load(game_file)
        return game

    def ensure(self, game_file: Path) -> bool:
        """Compile a game for later use, unless it is compiled already. Return whether this call compiled it.

        Raises:
            OSError: the file cannot be read, or the directory not written.
            ValueError: as `get`.
        """
        content = Path(game_file).read_bytes()
        entry = self.entry(content)
        if read_entry(entry, _made_by()) is not None:
            return False
        write_entry(entry, _made_by(), _compile(content, game_file).to_json().encode())
        return True

    def entry(self, content: bytes) -> Path:
        """Return the file of the compiled form of a game file with this content."""
        digest = hashlib.sha256(content).hexdigest()
        return self.directory / digest[:2] / f"{digest}.json"

    def _load(self, game_file: Path) -> CompiledGame:
        content = Path(game_file).read_bytes()
        entry = self.entry(content)
        game = read_game_entry(entry)
        if game is None:
            game = _compile(content, game_file)
            try:
                # The cache only saves time: without it the game still plays.
                write_entry(entry, _made_by(), game.to_json().encode())
            except OSError as error:
                warnings.warn(
                    f"Compiled games are not kept: {error.filename}: {error.strerror}. Set HGPO_GYM_CACHE to a folder "
                    "that can be written.",
                    stacklevel=4,
                )
        return game


def default_directory() -> Path:
    """`alfworld` in the cache directory."""
    return cache_dir() / "alfworld"


@functools.cache
def compiled_games(directory: Path) -> CompiledGames:
    """Return the `CompiledGames` of a directory, shared by all engines of this process."""
    return CompiledGames(directory)


def read_game_entry(entry: Path) -> CompiledGame | None:
    """Return the game of an entry; None if the entry is missing, damaged or of another code version."""
    body = read_entry(entry, _made_by())
    return None if body is None else CompiledGame.from_json(body.decode())


def _compile(content: bytes, game_file: Path) -> CompiledGame:
    try:
        return compile_game(json.loads(content))
    except UnknownGameRules as error:
        raise UnknownGameRules(f"{game_file}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{game_file} is not an ALFWorld game (game.tw-pddl): {error}") from error


@functools.cache
def _made_by() -> str:
    """Return a digest of the code that decides the content of an entry, so that no version number can be forgotten."""
    source = importlib.resources.files(__package__)
    digest = hashlib.sha256(b"".join((source / name).read_bytes() for name in COMPILER_MODULES)).hexdigest()[:16]
    return f"compiled game {digest}"
