"""Fetch files over HTTP. A file appears under its name only when it is complete and verified. Interrupted downloads
resume."""

import fcntl
import http.client
import os
import ssl
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

from hgpo_gym.digests import sha256
from hgpo_gym.progress import Progress, ProgressCallback

MIB = 2**20
MAX_ARCHIVE = 2**30
"""The most bytes of an archive that is fetched. Known ones have up to 72 MB."""
CHUNK = 2**16
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""

MAX_UNPACKED = 2**28
"""An archive that unpacks to more bytes, and to more than `MAX_RATIO` times its size, is refused."""
MAX_RATIO = 100

_NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError, OSError)
"""Errors that zipfile raises for damage of any kind; OSError if a damaged offset lies before the beginning."""


class DownloadError(OSError):
    """Error for a file that could not be fetched. The partial file remains, and the next attempt continues from
    there."""


@dataclass(frozen=True)
class Archive:
    """A published zip file.

    Attributes:
        url: where it is published; the last part is the file's name.
        sha256: of the file, as far as known.
    """

    url: str
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def fetch_archive(
    archive: Archive, folder: Path, progress: Progress, mirror: str | None = None, *, any_digest: bool = False
) -> Path:
    """Return the archive in `folder`. Fetch it unless the folder has it.

    The checks are the number of bytes that the server reports, the CRC-32 of each member and the SHA-256.

    Args:
        mirror: a folder on another server that has the file.
        any_digest: where the SHA-256 is not the one known for the archive, only say so: publishers have replaced files
            before.

    Raises:
        DownloadError: it cannot be fetched.
        ValueError: the archive is not the known one, or what was fetched is damaged. What was fetched is removed.
    """
    file = folder / archive.name
    url = f"{mirror.rstrip('/')}/{archive.name}" if mirror else archive.url

    def verify(part: Path) -> None:
        check_archive(part, report_progress)
        check_digest(archive.name, sha256(part), archive.sha256, any_digest, progress)

    with progress.stage(f"Fetching {archive.name}") as report_progress:
        if file.exists() and is_whole(file):
            check_digest(archive.name, sha256(file), archive.sha256, any_digest, progress)
        else:
            fetch(url, file, verify, report_progress, max_bytes=MAX_ARCHIVE)
    return file


def fetch(
    url: str, target: Path, verify: Callable[[Path], None], report_progress: ProgressCallback, *, max_bytes: int
) -> None:
    """Download to `<target>.part`, or continue it. When it is complete and `verify(part)` accepts it, rename it.

    A broken connection is opened again at once, as long as each attempt brings more of the file. No other process may
    fetch the same target: see `only_process`.

    Args:
        max_bytes: the largest accepted file.

    Raises:
        DownloadError: the server cannot be reached, refuses, sends no more, or sends too much.
        ValueError: `verify` objects; the part is removed.
    """
    part = target.with_name(f"{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    # Append mode: an interrupted download continues at its end.
    with part.open("ab") as file:
        while True:
            size_before, reason = file.tell(), "the connection broke off"
            try:
                if _receive(url, file, report_progress, max_bytes):
                    break
            except _NETWORK_ERRORS as error:
                reason = str(error)
            if (size := file.tell()) <= size_before:
                raise DownloadError(
                    f"Cannot fetch {url}: {reason}. The same command continues from the {size:,} bytes that are there."
                )
    try:
        verify(part)
    except ValueError as error:
        part.unlink()
        raise ValueError(f"{error} It came from {url} and was removed: the same command fetches it again.") from error
    part.replace(target)


def check_archive(file: Path, report_progress: ProgressCallback) -> None:
    """Read every member of a zip file and compare its CRC-32.

    Raises:
        ValueError: it is not a zip file, not whole, or a member is damaged.
    """
    where = "its list of members"
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            unpacked = sum(member.file_size for member in members)  # no more of a member is ever read
            if unpacked > max(MAX_UNPACKED, MAX_RATIO * file.stat().st_size):
                raise ValueError(f"{file} unpacks to {unpacked:,} bytes, more than {MAX_RATIO} times its size.")
            for done, member in enumerate(members, 1):
                report_progress(done, len(members), "members")
                where = member.filename
                with archive.open(member) as content:
                    while content.read(MIB):
                        pass
    except _ZIP_ERRORS as error:
        raise ValueError(f"{file} is not a valid zip file: {where}: {error}.") from error


def is_whole(file: Path) -> bool:
    """Return True if `check_archive` accepts a file."""
    try:
        check_archive(file, lambda *_: None)
    except ValueError:
        return False
    return True


def check_digest(name: str, digest: str, known: str, any_digest: bool, progress: Progress) -> None:
    """Compare the SHA-256 of a file with the known one. Raises ValueError on a difference, or only reports it if
    `any_digest`."""
    if digest == known:
        return
    difference = f"{name} is valid, but not the known file of that name: its SHA-256 is {digest}, not {known}."
    if not any_digest:
        raise ValueError(f"{difference} If you trust where it comes from, take it by --any-digest.")
    progress.line(difference)


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep other processes from changing a folder that must exist.

    Raises:
        BlockingIOError: another process has it.
    """
    # The kernel releases a lock on the folder when the process dies: no stale lock file remains.
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"Another hgpo-gym data is at work in {folder}: wait until it is done.") from None
        yield
    finally:
        os.close(handle)


def _receive(url: str, file: BinaryIO, report_progress: ProgressCallback, max_bytes: int) -> bool:
    """Append the missing part of a file. Return whether the file is complete, by the size that the server reports."""
    start = file.tell()
    # Without compression, so that ranges and lengths count bytes of the file itself.
    request = urllib.request.Request(url, headers={"User-Agent": "hgpo_gym", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start:
            raise
        error.close()
        if error.headers["Content-Range"] == f"bytes */{start}":
            return True
        _start_over(file)  # what is there is longer than the file
        return _receive(url, file, report_progress, max_bytes)
    with response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            _start_over(file)  # the server sends the file from its beginning
        elif not (sent := response.headers.get("Content-Range", "")).startswith(f"bytes {start}-"):
            raise urllib.error.URLError(f"asked for bytes from {start} on, the server sent {sent!r}")
        # `length` is the Content-Length, None without a valid one.
        total = None if response.length is None else file.tell() + response.length
        while chunk := response.read(CHUNK):
            if file.tell() + len(chunk) > max_bytes:
                _start_over(file)
                raise DownloadError(f"{url} sends more than {max_bytes:,} bytes, which no known version has.")
            file.write(chunk)
            report_progress(-(-file.tell() // MIB), -(-(total or file.tell()) // MIB), "MiB")
        # Without a Content-Length, only the end of the stream can tell that the file is complete.
        return total is None or file.tell() == total


def _start_over(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()
