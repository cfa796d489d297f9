"""Install and check WebShop's files: `hgpo-gym data webshop`."""

import filecmp
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hgpo_gym.envs.download import DownloadError, check_digest, fetch, only_process
from hgpo_gym.envs.webshop.catalogue import open_catalogue
from hgpo_gym.envs.webshop.catalogue.sources import HUMAN, data_place, file_digest
from hgpo_gym.envs.webshop.data.published import FULL, MAX_BYTES, SHA256, SMALL, CatalogueFiles, examine
from hgpo_gym.progress import Progress, ProgressCallback
from hgpo_gym.suggest import option

MIRROR = "https://huggingface.co/datasets/YWZBrandon/webshop-data/resolve/ce990fff5aee388db2706f07820c578ab68e0453"
"""Copy of the files by a third party. WebShop's authors publish them on Google Drive, without plain addresses."""
SETUP = "https://github.com/princeton-nlp/WebShop/blob/master/setup.sh"

_MB = 10**6


@dataclass
class WebShopSurvey:
    """Result of reading a folder: `published.examine`'s result for each valid file, and the reasons for the invalid
    ones."""

    valid: dict[str, Counter[str]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def missing(self, catalogue: CatalogueFiles) -> list[str]:
        """Return the missing files of a catalogue's human and synthetic goals."""
        return [name for name in (catalogue.products, catalogue.attributes, HUMAN) if name not in self.valid]


class WebShopData:
    """WebShop's files in a folder. Each file is verified by reading it completely. A file with an unknown digest is
    fetched only if the caller allows it. It is copied from a folder with a warning line.

    Args:
        folder: None: $WEBSHOP_DATA, else ~/.cache/webshop.
        progress: receives progress lines.
    """

    def __init__(self, folder: Path | None, progress: Progress):
        place = data_place(folder)
        self.root = place.parent if place.is_file() else place
        self.progress = progress

    def check(self, *, complete: bool = True) -> bool:
        """Read every file and report the result. Return whether all are valid and, if `complete`, no file of a
        catalogue is missing.

        Changes nothing.
        """
        survey = self._survey()
        lines = [f"WebShop's files in {self.root}:", *(self._describe(name, survey) for name in survey.valid)]
        self.progress.line("\n  ".join(lines))
        for reason in survey.damaged:
            self.progress.line(f"Damaged: {reason}")
        catalogues = self._catalogues()
        missing = [catalogue for catalogue in catalogues if survey.missing(catalogue)]
        for catalogue in missing:
            names = ", ".join(survey.missing(catalogue))
            self.progress.line(f"Missing of the {catalogue.size} catalogue: {names}.")
        if len(catalogues) > 1:
            self.progress.line(
                f"Two catalogues: set {option('data')} to {self.root / SMALL.products} or {self.root / FULL.products}."
            )
        return not ((missing and complete) or survey.damaged)

    def fetch(self, mirror: str | None, *, any_digest: bool = False) -> None:
        """Fetch the missing or invalid files of the catalogues that exist in part; of the small one if none exists.

        Args:
            mirror: a folder on another server, with the files under their names.
            any_digest: take files whose SHA-256 is not the known one.

        Raises:
            DownloadError: a file cannot be fetched.
            ValueError: what was fetched is damaged, or not the known file.
        """
        survey = self._survey()
        names = dict.fromkeys(name for catalogue in self._catalogues() for name in survey.missing(catalogue))
        with self._locked():
            for name in names:
                try:
                    self._fetch_file(name, (mirror or MIRROR).rstrip("/"), any_digest)
                except DownloadError as error:
                    raise DownloadError(
                        f"{error} Without network, or if that copy is gone: fetch {', '.join(names)} elsewhere, from "
                        f"{MIRROR} or by WebShop's own {SETUP}, which names their places on Google Drive, then run "
                        "'hgpo-gym data webshop --from FOLDER' with the folder that has them."
                    ) from error

    def take(self, sources: Sequence[Path]) -> bool:
        """Copy WebShop's files from folders, or the named files. Leave out invalid files. Return whether all are valid.

        Raises:
            FileNotFoundError: a source does not exist, or there is no such file.
            ValueError: two sources have the same file.
        """
        files = list_files(sources)
        with self._locked():
            copied = [name for name, file in files.items() if self._take_file(name, file)]
        return len(copied) == len(files)

    def compile(self) -> bool:
        """Build the existing catalogues in the cache, unless they are built. Return whether all could be built."""
        files = [self.root / catalogue.products for catalogue in self._catalogues()]
        built = [self._compile_file(file) for file in files if file.is_file()]
        if not built:
            self.progress.line(f"No catalogue to build: {self.root} has no {' and no '.join(f.name for f in files)}.")
        return bool(built) and all(built)

    def _locked(self) -> AbstractContextManager[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        return only_process(self.root)

    def _catalogues(self) -> list[CatalogueFiles]:
        """Return the catalogues that have at least one file; the small one if there is none."""
        names = (SMALL, FULL)
        started = [c for c in names if (self.root / c.products).exists() or (self.root / c.attributes).exists()]
        return started or [SMALL]

    def _survey(self) -> WebShopSurvey:
        survey = WebShopSurvey()
        for name in SHA256:
            if (file := self.root / name).is_file():
                try:
                    survey.valid[name] = self._examine(file, name)
                except ValueError as error:
                    survey.damaged.append(str(error))
        return survey

    def _examine(self, file: Path, name: str) -> Counter[str]:
        with self.progress.stage(f"Reading {name}", lines=False) as report_progress:
            return examine(file, name, _Bytes(file, report_progress).add)

    def _describe(self, name: str, survey: WebShopSurvey) -> str:
        found = survey.valid[name]
        if name == HUMAN:
            summary = f"{found.total():,} human goals"
            for catalogue in (SMALL, FULL):
                if products := survey.valid.get(catalogue.products):
                    number_of_goals = sum(number for asin, number in found.items() if asin in products)
                    summary += f", {number_of_goals:,} about products of the {catalogue.size} catalogue"
        else:
            summary = (
                f"{len(found):,} products" if name in (SMALL.products, FULL.products) else f"{len(found):,} entries"
            )
        known = "" if file_digest(self.root / name) == SHA256[name] else " (valid, but not the known file of that name)"
        return f"{name}: {summary}{known}"

    def _fetch_file(self, name: str, folder: str, any_digest: bool) -> None:
        with self.progress.stage(f"Fetching {name}") as report_progress:

            def verify(part: Path) -> None:
                examine(part, name, _Bytes(part, report_progress).add)
                check_digest(name, file_digest(part), SHA256[name], any_digest, self.progress)

            fetch(f"{folder}/{name}", self.root / name, verify, report_progress, max_bytes=MAX_BYTES[name])

    def _take_file(self, name: str, source: Path) -> bool:
        target = self.root / name
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            self.progress.line(f"There already: {name}.")
            return True
        try:
            self._examine(source, name)
        except ValueError as error:
            self.progress.line(f"Left out: {error}")
            return False
        part = target.with_name(f".{name}.part")
        shutil.copyfile(source, part)
        part.replace(target)
        self.progress.line(f"New: {name}.")
        return True

    def _compile_file(self, file: Path) -> bool:
        try:
            with self.progress.stage(f"Building the catalogue of {file.name}", lines=False) as report_progress:
                catalogue = open_catalogue(file, _in_mb(report_progress))
        except (ValueError, FileNotFoundError) as error:
            self.progress.line(f"Not built: {error}")
            return False
        self.progress.line(f"Built of {file.name}, {len(catalogue):,} products: {catalogue.folder}")
        return True


def list_files(sources: Sequence[Path]) -> dict[str, Path]:
    """Return WebShop's files by name: those in folders, and those named.

    Raises:
        FileNotFoundError: a source does not exist, or there is no such file.
        ValueError: two sources have the same file.
    """
    found: dict[str, Path] = {}
    for source in sources:
        if not source.exists():
            raise FileNotFoundError(f"{source} does not exist.")
        for file in [source] if source.is_file() else [source / name for name in SHA256]:
            if file.name in SHA256 and file.is_file():
                first_file = found.setdefault(file.name, file)
                if first_file != file:
                    raise ValueError(f"{first_file} and {file} are both there: name one of them, by --from FILE.")
    if not found:
        raise FileNotFoundError(
            f"No file of WebShop's in {', '.join(map(str, sources))}: expected {', '.join(SHA256)}, not in an archive."
        )
    return found


class _Bytes:
    """Counter of the bytes that were read of a file, for a progress bar."""

    def __init__(self, file: Path, report_progress: ProgressCallback):
        self._done, self._size, self._report_progress = 0, file.stat().st_size, _in_mb(report_progress)

    def add(self, read: int) -> None:
        self._done += read
        self._report_progress(self._done, self._size, "MB")


def _in_mb(report_progress: ProgressCallback) -> ProgressCallback:
    return lambda done, total, words: report_progress(-(-done // _MB), -(-total // _MB), words)
