"""Files of a run directory, which may come from somebody else: plain data, no larger or deeper than a run writes."""

import errno
import gzip
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml
from pydantic import BaseModel

from hgpo_gym.section import parse_section

CONFIG_BYTES = 2**18
"""The largest config.yaml. A typical one has 5 kB."""
CONFIG_VALUES = 20_000
"""The most values of a config.yaml, with aliases written out. A typical one has 200."""
CONFIG_DEPTH = 32
JSON_BYTES = 2**28
"""The largest file of metrics, summaries or rollouts, unpacked."""
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml, if PyYAML has it: ten times as fast."""


REMEDY = "Restore it from where the run comes from."
_CONTENT_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError),
    *(gzip.BadGzipFile, zlib.error, yaml.YAMLError),
)
"""The errors that parsers raise for odd content; PyYAML raises more than its own."""


class DamagedError(ValueError):
    """A file of a run is not what a run writes. The message names the file, the damage and a remedy."""

    def __init__(self, path: Path, reason: object, remedy: str = REMEDY):
        super().__init__(f"{path} is damaged: {reason}. {remedy}")


@contextmanager
def damage_named(path: Path, where: str = "", remedy: str = REMEDY) -> Iterator[None]:
    """Turn errors from a file's content into a `DamagedError` that names the file."""
    try:
        yield
    except DamagedError:
        raise
    except KeyError as error:
        raise DamagedError(path, f"{where}it has no {error}", remedy) from error
    except RecursionError as error:
        raise DamagedError(path, f"{where}it is nested too deep", remedy) from error
    except _CONTENT_ERRORS as error:
        reason = "; ".join(line.strip() for line in str(error).strip().rstrip(".").splitlines())
        raise DamagedError(path, where + reason, remedy) from error


def open_plain(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a file of a run directory, which is neither a link nor a pipe or a device.

    Raises FileNotFoundError, DamagedError.
    """
    try:
        # Opening a pipe without O_NONBLOCK waits for the other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist.") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DamagedError(path, "it is a link") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedError(path, "it is no plain file")
    return os.fdopen(descriptor, "r+b" if flags & os.O_RDWR else "rb")


def read_bytes(path: Path, most: int | None = None, *, unpack: bool = False) -> bytes:
    """Return the content of a file of a run directory, unpacked if it is gzipped.

    Args:
        most: the most bytes, unpacked; None: `JSON_BYTES`.

    Raises FileNotFoundError, DamagedError.
    """
    most = most or JSON_BYTES
    with damage_named(path), open_plain(path) as file:
        # One byte more than allowed shows that the file is too large, without reading all of it.
        content = (gzip.GzipFile(fileobj=file) if unpack else file).read(most + 1)
    if len(content) > most:
        raise DamagedError(path, f"it has more than {most:,} bytes")
    return content


def read_json(path: Path, kind: type[BaseModel] | None = None, *, unpack: bool = False) -> Any:
    """Return the content of a JSON file; of a `kind`, where one is named. Raises FileNotFoundError, DamagedError."""
    content = read_bytes(path, unpack=unpack)
    with damage_named(path):
        return _parse_json(content, kind)


def read_json_lines(path: Path, kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; empty if there is no file. A last line that a kill cut short is
    skipped. Raises DamagedError, which names the line."""
    if not path.exists():
        return []
    content, lines = read_bytes(path), []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        with damage_named(path, f"line {number}: "):
            lines.append(_parse_json(line, kind))
    return lines


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a mapping of plain data. Nothing is interpolated; no code runs. Raises FileNotFoundError, ValueError."""
    content = read_bytes(path, CONFIG_BYTES)
    remedy = (
        "Restore it, or remove it: training then goes on from the checkpoints beside it with the settings of the "
        "command."
    )
    with damage_named(path, remedy=remedy):
        config = _parse_yaml(content.decode())
        if not isinstance(config, dict) or not config or not _is_plain(config):
            raise ValueError("it is no mapping of names to numbers, texts, lists and mappings")
    return config


def _parse_json(content: bytes, kind: type[BaseModel] | None) -> Any:
    parsed = json.loads(content, parse_int=_whole)
    if kind is not None:
        check_record(kind, parsed)
    return parsed


def check_record(kind: type[BaseModel], content: Any) -> None:
    """Raise ValueError if the content of a file, or of a line, is not of this kind."""
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    parse_section(kind, content)


def _whole(digits: str) -> int:
    """Return an int that a float can hold. Raises OverflowError for larger ones."""
    number = int(digits)
    float(number)
    return number


def _parse_yaml(text: str) -> Any:
    loader = _SafeLoader(text)
    try:
        root = loader.get_single_node()
        _check_extent(root)
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _check_extent(root: yaml.Node | None) -> None:
    """Check the size and depth of a document, with aliases written out: a few nested aliases can expand to billions of
    values."""
    counted: dict[int, int] = {}

    def count(node: yaml.Node, depth: int) -> int:
        if depth > CONFIG_DEPTH:
            raise ValueError("it is nested too deep")
        if id(node) not in counted:
            inner = node.value if isinstance(node, yaml.CollectionNode) else []
            parts = [part for pair in inner for part in (pair if isinstance(pair, tuple) else (pair,))]
            counted[id(node)] = 1 + sum(count(part, depth + 1) for part in parts)
        if counted[id(node)] > CONFIG_VALUES:
            raise ValueError(f"it has more than {CONFIG_VALUES:,} values")
        return counted[id(node)]

    if root is not None:
        count(root, 0)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(inner) for name, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, int):
        return abs(value) <= sys.float_info.max  # json writes larger ones, but no float can hold them
    return value is None or isinstance(value, float | str)
