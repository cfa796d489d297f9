"""The cache directory, atomic writes of files and folders, and safe reads of files from others."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from platformdirs import user_cache_dir

_NEW_SECONDS = 60.0
"""The least age of a temporary folder that counts as abandoned."""
MAX_BYTES = 2**28
"""The largest file that is read whole, unpacked. A typical one of a run has 2 MB."""
_MOVE_CACHE = "Set HGPO_GYM_CACHE to a folder that can be written."


def cache_dir() -> Path:
    """`$HGPO_GYM_CACHE`, or the platform's cache directory for hgpo_gym.

    Raises:
        OSError: there is no home directory, in which it would be.
    """
    try:
        return Path(os.environ.get("HGPO_GYM_CACHE") or user_cache_dir("hgpo_gym")).expanduser()
    except RuntimeError:  # a user of a container, without HOME and unknown to the system
        raise OSError(f"There is no home directory, in which the cache would be. {_MOVE_CACHE}") from None


def expand_home(path: str | os.PathLike[str], remedy: str) -> Path:
    """Return the path with `~` expanded. Raises OSError with the remedy if there is no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise OSError(f"{path}: there is no home directory. {remedy}") from None


def content_key(content: Any) -> str:
    """Return 16 hexadecimal digits that identify JSON-like content."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def source_digest(*modules: ModuleType) -> str:
    """Return 16 hexadecimal digits that change whenever the source of these modules or packages does.

    As part of a cache key they invalidate entries that older code made.
    """
    sources = b"".join(path.read_bytes() for module in modules for path in _sources(module))
    return hashlib.sha256(sources).hexdigest()[:16]


def _sources(module: ModuleType) -> list[Path]:
    file = Path(str(module.__file__))
    return sorted(file.parent.rglob("*.py")) if hasattr(module, "__path__") else [file]


def write_entry(entry: Path, made_by: str, body: bytes) -> None:
    """Write a cache file for `read_entry` atomically.

    Raises:
        OSError: the folder cannot be written.
    """
    with writing(entry):
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = entry.parent / f".{secrets.token_hex(8)}.tmp"
        try:
            temporary.write_bytes(_header(made_by, body) + b"\n" + body)
            temporary.replace(entry)
        finally:
            temporary.unlink(missing_ok=True)


def read_entry(entry: Path, made_by: str) -> bytes | None:
    """Return the body that `write_entry` wrote; None if the file is missing, damaged or made by another part."""
    try:
        with open_plain(entry, max_bytes=None) as file:
            header, _, body = file.read().partition(b"\n")
    except OSError:  # not there, or not to be read: writing it will tell which
        return None
    return body if header == _header(made_by, body) else None


def _header(made_by: str, body: bytes) -> bytes:
    return f"hgpo_gym {made_by} {hashlib.sha256(body).hexdigest()}".encode()


class NotPlainError(OSError):
    """A link, a pipe, a device or too large a file stands where a run has a plain file: `filename` and `strerror`."""

    def __init__(self, path: Path, reason: str):
        super().__init__(errno.EINVAL, reason, str(path))

    def __str__(self) -> str:
        return f"Cannot use {self.filename}: {self.strerror}. A run has plain files and folders: restore or remove it."


def open_plain(path: Path, *, append: bool = False, max_bytes: int | None = MAX_BYTES) -> BinaryIO:
    """Open a file of a run directory, which somebody else may have written. Links are not followed.

    Args:
        append: for reading and appending; the file is created if it does not exist, and is never truncated.
        max_bytes: the largest file that is opened for reading; None: any size.

    Raises:
        FileNotFoundError: there is none.
        NotPlainError: it is not a regular file, it is too large, or appending would change a file of another name.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if append else os.O_RDONLY
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise NotPlainError(path, "it is a link" if path.is_symlink() else "it is no regular file") from None
    if reason := _why_not_plain(os.fstat(descriptor), append, max_bytes):
        os.close(descriptor)
        raise NotPlainError(path, reason)
    return os.fdopen(descriptor, "a+b" if append else "rb")


def _why_not_plain(status: os.stat_result, append: bool, max_bytes: int | None) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    if append and status.st_nlink > 1:
        return "it is a hard link, so that appending would change another file"
    if not append and max_bytes is not None and status.st_size > max_bytes:
        return f"it has more than {max_bytes:,} bytes"
    return ""


class NotWrittenError(OSError):
    """A file or folder could not be written, mostly because a disk is full: `filename` and `errno`."""

    def __init__(self, path: Path, number: int):
        super().__init__(number, os.strerror(number), str(path))
        self._path = path

    def __str__(self) -> str:
        room = ""
        if self.errno in _DISK_ERRORS:
            existing = next(folder for folder in self._path.absolute().parents if folder.exists())
            room = f"; {shutil.disk_usage(existing).free / 1e6:.1f} MB are free there"
        remedy = f" {_MOVE_CACHE}" if self._path.is_relative_to(cache_dir()) else ""
        return f"Cannot write {self.filename}: {self.strerror}{room}.{remedy}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise NotWrittenError, which names `path`, if the block meets a full disk, or a folder of the cache that
    cannot be written."""
    try:
        yield
    except NotWrittenError:
        raise
    except Exception as error:
        number = _disk_error(error)
        if number is None and isinstance(error, OSError) and _is_place_of(path, error.filename):
            number = error.errno
        if number is None:
            raise
        raise NotWrittenError(path, number) from error


def write_whole(target: Path, content: str | bytes) -> None:
    """Write or replace a file atomically; after a power cut it is the old or the new one.

    Raises:
        NotWrittenError: the disk is full; `target` is unchanged.
    """
    temporary = target.with_name(f".{target.name}.new")
    with writing(target):
        try:
            temporary.unlink(missing_ok=True)
            with temporary.open("xb") as file:  # "x" follows no link
                file.write(content.encode() if isinstance(content, str) else content)
            _sync(temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        # The rename itself is on disk only after the folder is synchronised.
        _sync(target.parent)


def check_can_be_written(path: Path) -> None:
    """Raise OSError if a file could not be written there; it is left as it is."""
    existed = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror}. Name a file in a folder that can be written.") from error
    if not existed:
        path.unlink()


def append_line(path: Path, line: str) -> None:
    """Append a line to a file. An incomplete last line is replaced. Raises NotWrittenError."""
    with writing(path), open_plain(path, append=True) as file:
        file.truncate(_end_of_whole_lines(file))
        file.write(line.encode() + b"\n")


def _end_of_whole_lines(file: BinaryIO) -> int:
    """Return the end of the last complete line. The file is read from its end, so the cost does not grow with it."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - 4096)
        file.seek(begin)
        if (place := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + place + 1
        end = begin
    return 0


def make_whole(target: Path, fill: Callable[[Path], None]) -> Path:
    """Create the folder `target` atomically: `fill(temporary_folder)`, then a rename.

    Of several processes that make the same folder, the first wins. A killed process leaves its temporary folder; the
    next call for `target` removes it.

    Raises:
        NotWrittenError: the disk is full; nothing is left behind.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name}-"
        _remove_abandoned(target.parent.glob(glob.escape(prefix) + "*"))
        temporary = target.parent / f"{prefix}{secrets.token_hex(8)}"
        temporary.mkdir()
        readable = temporary.stat().st_mode & 0o666  # by whom the umask says, whatever modes libraries give their files
        try:
            with _locked(temporary):
                fill(temporary)
                for path in (*temporary.rglob("*"), temporary):
                    if path.is_file():
                        path.chmod(readable)
                    _sync(path)
                try:
                    temporary.replace(target)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was first
                        raise
                _sync(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _remove_abandoned(folders: Iterable[Path]) -> None:
    """Remove folders without a lock, except new ones, which their process is about to lock."""
    for folder in folders:
        with suppress(OSError), _locked(folder):
            if time.time() - folder.stat().st_mtime > _NEW_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder in the block. Raises BlockingIOError if another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # The kernel releases the lock when the process dies, by SIGKILL too.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_place_of(path: Path, refused: Any) -> bool:
    """Return True if `path` is in the cache, and the refused path is it, a parent, or a temporary file beside it."""
    if not isinstance(refused, str | os.PathLike) or not path.is_relative_to(cache_dir()):
        return False
    return Path(refused) in (path, *path.parents) or Path(refused).parent == path.parent


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def _disk_error(error: BaseException | None) -> int | None:
    """Return the errno of the disk error behind an error, or None.

    Libraries written in Rust (safetensors, tokenizers) put it in their message; torch.save raises a RuntimeError of
    its own while the OSError passes through it.
    """
    while error is not None:
        in_words = re.search(r"\(os error (\d+)\)", str(error))
        number = error.errno if isinstance(error, OSError) else int(in_words[1]) if in_words else None
        if number in _DISK_ERRORS:
            return number
        error = error.__context__
    return None
