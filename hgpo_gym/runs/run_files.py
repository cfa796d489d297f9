"""Files of a run directory, which may be somebody else's: plain data, no larger or deeper than a run writes."""

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
"""Of a config.yaml. One has 5 kB."""
CONFIG_VALUES = 20_000
"""Of a config.yaml, whatever an alias repeats counted each time. One has 200."""
CONFIG_DEPTH = 32
JSON_BYTES = 2**28
"""Of metrics, summaries and rollouts, unpacked."""
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""By libyaml where PyYAML has it: ten times as fast."""


class DamagedError(ValueError):
    """A file of a run is not what a run writes: names the file, what is wrong, and a remedy."""

    def __init__(self, path: Path, reason: object, remedy: str = "Restore it from where the run comes from."):
        super().__init__(f"{path} is damaged: {reason}. {remedy}")


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Whatever the block stumbles over in the content of a file becomes a `DamagedError` that names it."""
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
    """A plain file of at most so many bytes. Raises FileNotFoundError, DamagedError."""
    _check_plain(path)
    with path.open("rb") as file:
        return _at_most(file.read(most + 1), most, path)


def read_gzipped(path: Path, most: int = JSON_BYTES) -> bytes:
    """The same of a gzipped file, which may unpack to at most so many bytes."""
    _check_plain(path)
    try:
        with gzip.open(path, "rb") as file:
            return _at_most(file.read(most + 1), most, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DamagedError(path, error) from error


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises FileNotFoundError, DamagedError."""
    return _parse_json(read_bytes(path), path)


def read_gzipped_json(path: Path) -> Any:
    """The content of a gzipped JSON file. Raises FileNotFoundError, DamagedError."""
    return _parse_json(read_gzipped(path), path)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """An object a line; empty if there is no file. A last line cut short by a kill is left out. Raises DamagedError."""
    if not path.exists():
        return []
    content = read_bytes(path)
    lines = [_parse_json(line, path) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    if not all(isinstance(line, dict) for line in lines):
        raise DamagedError(path, "a line is no JSON object")
    return lines


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping of plain data; nothing in it is looked up or run. Raises FileNotFoundError, ValueError."""
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
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:  # as PyYAML comes across them
        raise DamagedError(path, " ".join(str(error).split()).rstrip("."), remedy) from error
    if not isinstance(config, dict) or not config or not _is_plain(config):
        raise DamagedError(path, "it is no mapping of names to numbers, texts, lists and mappings", remedy)
    return config


def _check_plain(path: Path) -> None:
    """A device or a pipe would be read without end."""
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
    """Raises OverflowError where no number of a report could hold it."""
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
    """Aliases make much of little: each place that one stands at counts as if it were written out."""
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
        return abs(value) <= sys.float_info.max  # larger ones no number of a report can hold
    return value is None or isinstance(value, float | str)
