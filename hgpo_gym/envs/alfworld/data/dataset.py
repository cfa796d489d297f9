"""Install and check ALFWorld's released games: `hgpo-gym data alfworld`."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hgpo_gym.envs.alfworld.data.install import install, list_sources, open_sources
from hgpo_gym.envs.alfworld.games.files import (
    SPLITS,
    TASK_TYPES,
    VERSION_FOLDER,
    InvalidGameError,
    examine_game,
    game_files,
)
from hgpo_gym.envs.alfworld.native.compiled_games import CompiledGames, default_directory
from hgpo_gym.envs.alfworld.splits import data_root
from hgpo_gym.envs.download import (
    Archive,
    DownloadError,
    check_archive,
    fetch_archive,
    is_whole,
    only_process,
)
from hgpo_gym.progress import Progress

RELEASES = "https://github.com/alfworld/alfworld/releases/download"
ARCHIVES = (
    Archive(
        f"{RELEASES}/0.2.2/json_2.1.1_json.zip",
        sha256="25171f16e20ad7b048c47275c45b0babf3aa1cbab29cec97387922350a9844bc",
    ),
    Archive(
        f"{RELEASES}/0.4.0/json_2.1.2_tw-pddl.zip",
        sha256="eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
    ),
)
"""The trajectories (72 MB) and the games (36 MB), which `alfworld-download` of alfworld 0.4.2 fetches too. alfworld
publishes no digests: these are the ones that users have published. `--from` installs the games of release 0.4.2
(json_2.1.3_tw-pddl.zip). Games whose texts differ get other task ids."""

GAMES = {
    split: dict(zip(TASK_TYPES, numbers, strict=True))
    for split, numbers in {
        "train": (790, 308, 650, 459, 533, 813),
        "valid_seen": (35, 13, 27, 16, 25, 24),
        "valid_unseen": (24, 18, 31, 23, 21, 17),
        "valid_train": (46, 19, 37, 25, 28, 45),
    }.items()
}
"""Number of playable games by split and task type: Shridhar et al., 2021, table 1; `valid_train` was counted."""

_LISTED = 20


@dataclass
class ALFWorldSurvey:
    """Result of reading the games in a folder: the playable games, their number by split and task type, the damaged
    ones."""

    playable: list[Path] = field(default_factory=list)
    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    damaged: list[str] = field(default_factory=list)

    def missing(self) -> int:
        """Return how many games of the release are missing."""
        return sum((Counter(released) - self.counts[split]).total() for split, released in GAMES.items())


class ALFWorldData:
    """ALFWorld's games in a folder.

    Checks: `download.fetch_archive` verifies a fetched archive. `files.examine_game` verifies each game, from any
    source. The number of games by split and task type verifies the whole.

    Args:
        folder: as `data` of `splits.find_games`; None: $ALFWORLD_DATA, else ~/.cache/alfworld.
        progress: receives progress lines.
    """

    def __init__(self, folder: Path | None, progress: Progress):
        self.root = data_root(folder)
        has_splits = any((self.root / split).is_dir() for split in SPLITS)
        self.base = self.root if has_splits or self.root.name == VERSION_FOLDER else self.root / VERSION_FOLDER
        self.progress = progress

    def check(self, *, complete: bool = True) -> bool:
        """Read every game and report the result. Return whether all are valid and, if `complete`, the release has no
        gaps.

        Changes nothing.
        """
        survey = self._survey()
        self.progress.line(f"ALFWorld games in {self.base}, of those released:\n{_table(survey.counts)}")
        self._list("damaged", survey.damaged)
        damaged = self._damaged_archives()
        self._list("damaged", damaged)
        if missing := survey.missing():
            self.progress.line(f"Missing games: {missing:,}.")
        return not ((missing and complete) or survey.damaged or damaged)

    def fetch(self, mirror: str | None, *, any_digest: bool = False) -> None:
        """Fetch the release's archives into `archives` in the folder. Install games that are missing or differ from the
        release.

        Args:
            mirror: a folder on another server, with the archives under their names.
            any_digest: take archives whose SHA-256 is not the known one.

        Raises:
            DownloadError: an archive cannot be fetched.
            ValueError: an archive is damaged, or not the known one.
        """
        folder = self.root / "archives"
        with self._locked():
            try:
                files = [
                    fetch_archive(archive, folder, self.progress, mirror, any_digest=any_digest) for archive in ARCHIVES
                ]
            except DownloadError as error:
                urls = " and ".join(archive.url for archive in ARCHIVES)
                raise DownloadError(
                    f"{error} Without network: fetch {urls} elsewhere, then run 'hgpo-gym data alfworld --from FOLDER' "
                    f"with the folder that has the two files, or {VERSION_FOLDER} with the extracted games."
                ) from error
            self._install(files)
        self.progress.line(f"The archives stay in {folder}, to restore games from. They may be removed.")

    def take(self, sources: Sequence[Path]) -> bool:
        """Install the games of folders or archives. Return whether all are valid. See `install.list_sources`.

        Raises:
            FileNotFoundError: a source does not exist, or there are no games.
            ValueError: an archive is damaged, or two sources have the same game.
        """
        found = list_sources(sources)
        for file in found:
            if file not in sources:
                self.progress.line(f"Taking {file}.")
            if file.is_file():
                with self.progress.stage(f"Checking {file.name}", lines=False) as report_progress:
                    check_archive(file, report_progress)
        with self._locked():
            return self._install(found)

    def compile(self) -> bool:
        """Compile every game for the native engine, unless it is compiled already. Return whether all could be
        compiled."""
        games, playable = CompiledGames(default_directory()), self._survey().playable
        new, failed = 0, []
        with self.progress.stage("Compiling", lines=False) as report_progress:
            for done, file in enumerate(playable, 1):
                report_progress(done, len(playable), "games")
                try:
                    new += games.ensure(file)
                except ValueError as error:
                    failed.append(str(error))
        existing = len(playable) - new - len(failed)
        self.progress.line(f"Compiled games in {games.directory}: new {new:,}; there already: {existing:,}.")
        self._list("not compiled", failed)
        return not failed

    def _locked(self) -> AbstractContextManager[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        return only_process(self.root)

    def _install(self, sources: Sequence[Path]) -> bool:
        with open_sources(sources) as trials:
            result = install(trials, self.base, self.progress)
        self.progress.line(f"New games: {result.new:,}; there already: {result.existing:,}.")
        self._list("damaged and left out", result.damaged)
        return not result.damaged

    def _survey(self) -> ALFWorldSurvey:
        survey = ALFWorldSurvey()
        folders = sorted(entry for entry in self.base.glob("[!.]*") if entry.is_dir())
        files = [(folder, file) for folder in folders for file in game_files(folder)]
        with self.progress.stage("Reading games", lines=False) as report_progress:
            for done, (folder, file) in enumerate(files, 1):
                report_progress(done, len(files), folder.name)
                try:
                    result = examine_game(file, folder)
                except InvalidGameError as error:
                    survey.damaged.append(str(error))
                else:
                    if "skipped" not in result:
                        survey.playable.append(file)
                        survey.counts[folder.name][result["task_type"]] += 1
        return survey

    def _damaged_archives(self) -> list[str]:
        files = [self.root / "archives" / archive.name for archive in ARCHIVES]
        return [str(file) for file in files if file.exists() and not is_whole(file)]

    def _list(self, what: str, names: Sequence[str]) -> None:
        if names:
            more = [f"... and {len(names) - _LISTED:,} more"] if len(names) > _LISTED else []
            self.progress.line("\n  ".join([f"{len(names):,} {what}:", *names[:_LISTED], *more]))


def _table(counts: defaultdict[str, Counter[str]]) -> str:
    """Return rows of `existing/released` by task type (down) and split (across). Custom folders have no second
    number."""
    splits = [*GAMES, *sorted(counts.keys() - GAMES.keys())]
    rows = [["", *splits]]
    for name, task_types in [*((name, [name]) for name in TASK_TYPES), ("all", TASK_TYPES)]:
        rows.append([name, *(_share(counts[split], GAMES.get(split), task_types) for split in splits)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


def _share(counts: Counter[str], released: Mapping[str, int] | None, task_types: Sequence[str]) -> str:
    number = f"{sum(counts[name] for name in task_types):,}"
    return f"{number}/{sum(released[name] for name in task_types):,}" if released else number
