"""Read ALFWorld's games from archives or folders, check each game, and install it where `splits` looks for games."""

import contextlib
import os
import re
import shutil
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath

from hgpo_gym.envs.alfworld.games.files import GAME_FILE, SPLITS, TRAJECTORY_FILE, InvalidGameError, examine_game
from hgpo_gym.progress import Progress, ProgressCallback

ARCHIVES_PATTERN = "json_*.zip"

Trial = dict[str, Callable[[], bytes]]
"""The files of a game by name, each as a function that reads it."""
Trials = Mapping[str, Mapping[str, Trial]]
"""Trials by split and place (`<task>/<trial>`)."""


@dataclass
class Installed:
    """Result of an installation: the number of new games, the number of games installed before, and the damaged ones
    with the reason."""

    new: int = 0
    existing: int = 0
    damaged: list[str] = field(default_factory=list)


def list_sources(paths: Sequence[Path]) -> list[Path]:
    """Return the zip files and folders of games: those in `paths`, or the `json_*.zip` of a folder without games. Of
    several versions of the games there, return the newest.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    sources: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist.")
        has_games = any(GAME_FILE in names for _, _, names in os.walk(path))
        archives = [] if has_games else sorted(path.glob(ARCHIVES_PATTERN))
        older_versions = sorted(filter(_version, archives), key=_version)[:-1]
        sources += [archive for archive in archives if archive not in older_versions] or [path]
    return sources


def _version(archive: Path) -> tuple[int, ...]:
    """Return the version in the name of an archive `json_2.1.2_tw-pddl.zip`; an empty one for any other name."""
    found = re.fullmatch(r"json_([\d.]+)_tw-pddl\.zip", archive.name)
    return tuple(map(int, found[1].split("."))) if found else ()


@contextlib.contextmanager
def open_sources(sources: Sequence[Path]) -> Iterator[Trials]:
    """Yield the games in zip files and folders. They can be read while the context lasts.

    A game's name is its path below the folder of a split. Its two files may come from different sources.

    Raises:
        FileNotFoundError: there are no games.
        ValueError: two sources have the same file.
    """
    trials: dict[str, dict[str, Trial]] = defaultdict(lambda: defaultdict(dict))
    origins: dict[tuple[str, str, str], Path] = {}
    with contextlib.ExitStack() as open_files:
        for source in sources:
            for path, read in _files(source, open_files):
                if (found := _place(path)) is None:
                    continue
                split, place = found
                first_source = origins.setdefault((split, place, path.name), source)
                if first_source != source:
                    raise ValueError(f"{first_source} and {source} both have {path}: name one of them, by --from FILE.")
                trials[split][place][path.name] = read
        games = {
            split: {place: trial for place, trial in of_split.items() if GAME_FILE in trial}
            for split, of_split in trials.items()
        }
        if not any(games.values()):
            raise FileNotFoundError(
                f"No ALFWorld games in {', '.join(map(str, sources))}: expected <split>/<task>/<trial>/{GAME_FILE} and "
                f"{TRAJECTORY_FILE}, as files or in archives {ARCHIVES_PATTERN}."
            )
        yield games


def install(trials: Trials, base: Path, progress: Progress) -> Installed:
    """Put the games that alfworld plays in `<base>/<split>/<task>/<trial>`. Leave out damaged games.

    A missing split appears whole. An existing split gets the missing games and those that differ.
    """
    base.mkdir(parents=True, exist_ok=True)
    result = Installed()
    for split, of_split in sorted(trials.items()):
        with progress.stage(f"Installing {split}", lines=False) as report_progress:
            _install_split(of_split, base / split, result, report_progress)
    return result


def _install_split(
    trials: Mapping[str, Trial], target: Path, result: Installed, report_progress: ProgressCallback
) -> None:
    staging = target.with_name(f".{target.name}.part")
    shutil.rmtree(staging, ignore_errors=True)  # of an installation that was killed
    staged: list[str] = []
    for done, (place, trial) in enumerate(sorted(trials.items()), 1):
        report_progress(done, len(trials), "games")
        content = {name: read() for name, read in trial.items()}
        if all(_holds(target / place / name, data) for name, data in content.items()):
            result.existing += 1
            continue
        for name, data in content.items():
            (staging / place).mkdir(parents=True, exist_ok=True)
            (staging / place / name).write_bytes(data)
        try:
            playable = "skipped" not in examine_game(staging / place / GAME_FILE, staging)
        except InvalidGameError as error:
            result.damaged.append(f"{target.name}/{place}/{error.file.name}: {error.reason}")
            playable = False
        if playable:
            staged.append(place)
        else:
            shutil.rmtree(staging / place)
            with contextlib.suppress(OSError):  # the task may have other trials
                (staging / place).parent.rmdir()
    result.new += len(staged)
    if staged and not target.exists():
        staging.replace(target)
        return
    for place in staged:
        (target / place).mkdir(parents=True, exist_ok=True)
        for name in trials[place]:
            (staging / place / name).replace(target / place / name)
    shutil.rmtree(staging, ignore_errors=True)


def _holds(file: Path, content: bytes) -> bool:
    return file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content


def _files(source: Path, open_files: contextlib.ExitStack) -> Iterator[tuple[PurePath, Callable[[], bytes]]]:
    """Yield the files of a source with their paths."""
    if source.is_dir():
        for folder, _, names in os.walk(source.resolve()):
            yield from ((file, file.read_bytes) for file in (Path(folder, name) for name in names))
    else:
        archive = open_files.enter_context(zipfile.ZipFile(source))
        for member in archive.infolist():
            yield PurePath(member.filename), partial(archive.read, member)


def _place(path: PurePath) -> tuple[str, str] | None:
    """Return `(split, place)` of a file of a game, None for other files. The last folder with the name of a split
    counts."""
    if path.name not in (GAME_FILE, TRAJECTORY_FILE) or ".." in path.parts:
        return None
    folders = path.parts[:-1]
    at = max((index for index, name in enumerate(folders) if name in SPLITS), default=len(folders))
    place = "/".join(folders[at + 1 :])
    return (folders[at], place) if place else None
