"""Files of a run directory, which may come from somebody else: plain data, no larger or deeper than a run writes."""

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

CONFIG_BYTES = 2**18
"""The largest config.yaml. A typical one has 5 kB."""
CONFIG_VALUES = 20_000
"""The most values of a config.yaml, with aliases written out. A typical one has 200."""
CONFIG_DEPTH = 32
JSON_BYTES = 2**28
"""The largest file of metrics, summaries or rollouts, unpacked."""
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml, if PyYAML has it: ten times as fast."""


class DamagedError(ValueError):
    """A file of a run is not what a run writes. The message names the file, the damage and a remedy."""

    def __init__(self, path: Path, reason: object, remedy: str = "Restore it from where the run comes from."):
        super().__init__(f"{path} is damaged: {reason}. {remedy}")


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn errors from a file's content into a `DamagedError` that names the file."""
    try:
        yield
    except DamagedError:
        raise
    except KeyError as error:
        raise DamagedError(path, f"it has no {error}") from error
    except RecursionError as error:
        raise DamagedError(path, "it is nested too deep") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, zlib.error) as error:
        raise DamagedError(path, str(error).strip().rstrip(".").replace("\n", "; ")) from error


def read_bytes(path: Path, most: int = JSON_BYTES) -> bytes:
    """Return the content of a plain file of at most `most` bytes. Raises FileNotFoundError, DamagedError."""
    _check_plain(path)
    with path.open("rb") as file:
        # One byte more than allowed shows that the file is too large, without reading all of it.
        return _at_most(file.read(most + 1), most, path)


def read_gzipped(path: Path, most: int = JSON_BYTES) -> bytes:
    """Return the content of a gzipped file, at most `most` bytes unpacked. Raises FileNotFoundError, DamagedError."""
    _check_plain(path)
    try:
        with gzip.open(path, "rb") as file:
            return _at_most(file.read(most + 1), most, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DamagedError(path, error) from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises FileNotFoundError, DamagedError."""
    return _parse_json(read_bytes(path), path)


def read_gzipped_json(path: Path) -> Any:
    """Return the content of a gzipped JSON file. Raises FileNotFoundError, DamagedError."""
    return _parse_json(read_gzipped(path), path)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; empty if there is no file. A last line that a kill cut short is
    skipped. Raises DamagedError."""
    if not path.exists():
        return []
    content = read_bytes(path)
    lines = [_parse_json(line, path) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    if not all(isinstance(line, dict) for line in lines):
        raise DamagedError(path, "a line is no JSON object")
    return lines


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a mapping of plain data. Nothing is interpolated; no code runs. Raises FileNotFoundError, ValueError."""
    content = read_bytes(path, CONFIG_BYTES)
    remedy = (
        "Restore it, or remove it: training then goes on from the checkpoints beside it with the settings of the "
        "command."
    )
    try:
        text = content.decode()
        config = _parse_yaml(text)
    except RecursionError as error:
        raise DamagedError(path, "it is nested too deep", remedy) from error
    # On odd content, PyYAML raises more than its own errors.
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedError(path, " ".join(str(error).split()).rstrip("."), remedy) from error
    if not isinstance(config, dict) or not config or not _is_plain(config):
        raise DamagedError(path, "it is no mapping of names to numbers, texts, lists and mappings", remedy)
    return config


def _check_plain(path: Path) -> None:
    """Raise an error unless the path is a plain file: a device or a pipe could be read without end."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if not path.is_file():
        raise DamagedError(path, "it is no plain file")


def _at_most(content: bytes, most: int, path: Path) -> bytes:
    if len(content) > most:
        raise DamagedError(path, f"it has more than {most:,} bytes")
    return content


def _parse_json(content: bytes, path: Path) -> Any:
    with damage_named(path):
        return json.loads(content, parse_int=_whole)


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
