"""Folders with a manifest of digests, which shows damage. The cache's folders are checked when they are opened."""

import hashlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import BinaryIO

from hgpo_gym.files import make_whole, open_plain, read_entry, write_entry, writing

MANIFEST = "manifest"
CHECK_VARIABLE = "HGPO_GYM_CHECK_CACHE"
"""The value `no` skips the check of the cache's folders, for catalogues of gigabytes on a trusted disk."""


def write_manifest(folder: Path, made_by: str) -> None:
    """Write the digest and name of every file, in the format of `sha256sum`, which `sha256sum --check` reads."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(folder)}\n" for path in files]
    write_entry(folder / MANIFEST, made_by, "".join(lines).encode())


def find_damage(folder: Path, made_by: str) -> str | None:
    """Return a description of the first file in a folder that is not what was written, or None. Reads 1 to 2 GB a
    second."""
    manifest = read_entry(folder / MANIFEST, made_by)
    if manifest is None:
        return f"its {MANIFEST} is damaged or missing"
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in manifest.decode().splitlines())}
    # Only what lies in the folder is opened, whatever names the manifest has, and no link in it is followed.
    for path in sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()):
        name = str(path.relative_to(folder))
        try:
            with open_plain(path, max_bytes=None) as file:
                if name in digests and _sha256(file) != digests.pop(name):
                    return f"{name} ({file.tell():,} bytes) is not what was written"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return f"{min(digests)} is missing" if digests else None


def cached_folder(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return the cache folder `target`. If it does not exist, `fill(temporary_folder)` makes it.

    A damaged folder is renamed, with a warning that names it, and made again. A process checks each folder once.

    Raises:
        NotWrittenError: the disk is full, or the cache cannot be written; nothing is left behind.
    """
    with writing(target):
        exists = target.is_dir()  # which raises PermissionError in the home directory of another user
    if exists:
        status = target.stat()
        if (damage := _damage_once(target, status.st_ino, status.st_mtime_ns)) is None:
            return target
        renamed = set_aside(target)
        warnings.warn(
            f"{target} is damaged: {damage}. It is now {renamed} and is made again; delete it when you have seen what "
            "happened to it.",
            stacklevel=3,
        )

    def fill_and_note(folder: Path) -> None:
        fill(folder)
        write_manifest(folder, _made_by(target))

    return make_whole(target, fill_and_note)


@cache
def _damage_once(folder: Path, _inode: int, _changed: int) -> str | None:
    """Return `find_damage` of a cache folder. The key holds inode and change time, so that a replaced folder is checked
    again."""
    return None if os.environ.get(CHECK_VARIABLE) == "no" else find_damage(folder, _made_by(folder))


def _made_by(folder: Path) -> str:
    return f"cache {folder.name}"


def set_aside(folder: Path) -> Path:
    """Rename a damaged folder, so that nothing reads it under its name. Returns the new path."""
    names = (folder.with_name(f"unsound_{folder.name}_{number}") for number in count(1))
    return folder.rename(next(name for name in names if not name.exists()))


def sha256(path: Path) -> str:
    """Return the digest of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return _sha256(file)


def _sha256(file: BinaryIO) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO is all it needs
