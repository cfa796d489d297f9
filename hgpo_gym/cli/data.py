"""The command `hgpo-gym data`: check an environment's data, and get what is missing."""

import argparse
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from hgpo_gym.cli.errors import CommandFailed
from hgpo_gym.extras import requires_extra
from hgpo_gym.progress import Progress

DATASETS = {
    "alfworld": "hgpo_gym.envs.alfworld.data.dataset:ALFWorldData",
    "webshop": "hgpo_gym.envs.webshop.data.dataset:WebShopData",
}
"""Import paths of the `Dataset` classes. Arguments: a folder, or None for the default one, and a `Progress`."""


class Dataset(Protocol):
    """The data of an environment in a folder. Each method prints its findings; True means that all is well."""

    def check(self, *, complete: bool = True) -> bool:
        """Read the existing files without changes. With `complete`, a missing file is a failure."""

    def fetch(self, mirror: str | None, *, any_digest: bool) -> None:
        """Get missing files from their publisher, or from a folder on another server.

        With `any_digest`, files with another than the known SHA-256 are accepted.
        """

    def take(self, sources: Sequence[Path]) -> bool:
        """Copy files from folders or archives."""

    def compile(self) -> bool:
        """Prepare what an environment would otherwise prepare at its first use."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument("dataset", choices=DATASETS, help="the environment")
    command.add_argument("--to", type=Path, metavar="FOLDER", help="where to keep it, instead of the default folder")
    command.add_argument("--check", action="store_true", help="only look; exit with 1 if files are missing or damaged")
    command.add_argument(
        "--from",
        dest="sources",
        action="append",
        type=Path,
        metavar="PATH",
        help="copy it from a folder or an archive, not from the network; may be given several times",
    )
    command.add_argument("--mirror", metavar="URL", help="a folder on another server that has the published files")
    command.add_argument(
        "--any-digest",
        action="store_true",
        help="accept files whose SHA-256 is unknown: the server decides what you get",
    )
    command.add_argument("--compile", action="store_true", help="compile it as well, so that episodes start faster")


def data(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym data`. Exits with 1 if files are missing or damaged."""
    try:
        valid = get_data(parsed, Progress())
    except KeyboardInterrupt:
        raise CommandFailed("interrupted. The same command continues from there.", 130) from None
    if not valid:
        raise SystemExit(1)


def get_data(parsed: argparse.Namespace, progress: Progress) -> bool:
    """Do what the arguments say. Returns True if all files exist and are valid.

    Raises:
        ModuleNotFoundError: a package is missing.
        OSError: something cannot be fetched, read or written.
        ValueError: arguments that exclude each other, or a damaged archive.
    """
    if parsed.check and (parsed.sources or parsed.mirror or parsed.compile):
        raise ValueError("--check changes nothing: leave out --from, --mirror and --compile.")
    dataset = _find(parsed.dataset)(parsed.to, progress)
    if parsed.sources:
        copied = dataset.take(parsed.sources)
        valid = dataset.check(complete=False) and copied
    else:
        valid = dataset.check()
        if not (valid or parsed.check):
            dataset.fetch(parsed.mirror, any_digest=parsed.any_digest)
            valid = dataset.check()
    if parsed.compile:
        # compile() comes first: it runs even if a check has failed.
        valid = dataset.compile() and valid
    return valid


def _find(name: str) -> Callable[[Path | None, Progress], Dataset]:
    """Return the class of a dataset. Its packages are the extra of its environment, which has the same name."""
    with requires_extra(name, f"The data of {name}"):
        return pkgutil.resolve_name(DATASETS[name])
