"""Files of a run directory, read as plain data and checked by one model per file. A damaged file is named."""

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from hgpo_gym.files import MAX_BYTES, open_plain, write_whole
from hgpo_gym.section import parse_section

CONFIG_BYTES = 2**18
"""The largest config.yaml. A typical one has 5 kB."""
CONFIG_VALUES = 20_000
"""The most values of a config.yaml, where an alias counts at every place. A typical one has 200."""
CONFIG_DEPTH = 32
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null")}

_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml, if PyYAML has it: ten times as fast."""

REMEDY = "Restore it from where the run comes from."
_CONTENT_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, EOFError),
    *(gzip.BadGzipFile, zlib.error, yaml.YAMLError),
)


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
    except _CONTENT_ERRORS as error:
        reason = "; ".join(line.strip() for line in str(error).strip().rstrip(".").splitlines())
        raise DamagedError(path, where + reason, remedy) from error


def read_gzip(path: Path) -> bytes:
    """Return the content of a gzipped file. Raises FileNotFoundError, NotPlainError, DamagedError."""
    with open_plain(path) as file, damage_named(path):
        # One byte more than allowed shows that there is too much, without unpacking all of it.
        content = gzip.GzipFile(fileobj=file).read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_BYTES:,} bytes")
        return content


def write_gzip(path: Path, text: str) -> None:
    """Write a gzipped file; equal texts give equal bytes. Raises NotWrittenError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A response may hold lone surrogates, which UTF-8 cannot encode.
    content = text.encode(errors="backslashreplace")
    write_whole(path, gzip.compress(content, compresslevel=5, mtime=0))


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a plain file. Raises FileNotFoundError, NotPlainError."""
    with open_plain(path, max_bytes=max_bytes) as file:
        return file.read()


def read_json(path: Path, kind: type[BaseModel] | None = None) -> Any:
    """Return the content of a JSON file, gzipped if its name ends in `.gz`.

    Args:
        kind: the model that the content must match; None: any.

    Raises:
        FileNotFoundError, NotPlainError, DamagedError
    """
    content = read_gzip(path) if path.suffix == ".gz" else read_bytes(path)
    with damage_named(path):
        return _parse_json(content, kind)


def read_json_lines(path: Path, kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; empty if there is no file. A last line that a kill cut short is
    skipped. Raises NotPlainError, DamagedError, which names the line."""
    if not path.exists():
        return []
    content, lines = read_bytes(path), []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        with damage_named(path, f"line {number}: "):
            lines.append(_parse_json(line, kind))
    return lines


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a mapping of plain data. Nothing is interpolated; no code runs.

    Raises:
        FileNotFoundError, NotPlainError, DamagedError
    """
    remedy = (
        "Restore it, or remove it: training then continues from the checkpoints beside it with the settings of the "
        "command."
    )
    content = read_bytes(path, CONFIG_BYTES)
    with damage_named(path, remedy=remedy):
        loader = _SafeLoader(content)
        root = loader.get_single_node()
        _check_extent(root)
        config = loader.construct_document(root) if root else None
        if not isinstance(config, dict) or not config:
            raise ValueError("it is no mapping of names to values")
    return config


def _check_extent(root: yaml.Node | None) -> None:
    """Raise ValueError for a document that is no plain data, too deep or too large: a few aliases of aliases can stand
    for billions of values."""
    nodes, left = [root] if root else [], CONFIG_VALUES
    for _ in range(CONFIG_DEPTH):
        nodes = list(islice(chain.from_iterable(map(_inner_nodes, nodes)), left + 1))
        left -= len(nodes)
        if left < 0:
            raise ValueError(f"it has more than {CONFIG_VALUES:,} values")
    if nodes:
        raise ValueError(f"it is nested deeper than {CONFIG_DEPTH} levels")


def _inner_nodes(node: yaml.Node) -> Iterable[yaml.Node]:
    if node.tag not in _PLAIN_TAGS:
        raise ValueError(f"line {node.start_mark.line + 1}: {node.tag} is no plain data")
    if node.tag.endswith(":int") and len(node.value) > sys.float_info.max_10_exp:
        raise ValueError(f"line {node.start_mark.line + 1}: a number of {len(node.value)} digits")
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _parse_json(content: bytes, kind: type[BaseModel] | None) -> Any:
    parsed = json.loads(content)
    if kind is not None:
        check_record(kind, parsed)
    return parsed


def check_record(kind: type[BaseModel], content: Any) -> None:
    """Raise ValueError if the content of a file, or of a line, does not match the model."""
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    parse_section(kind, content)
