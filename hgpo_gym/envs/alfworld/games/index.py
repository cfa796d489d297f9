"""Index of the games of a folder from the last read, so that only new and changed files are read again.

An index is a file in the cache directory. For each game below the folder, it holds the size and modification time of
both files, and the result of reading them. A damaged index, or one of other code, is ignored.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hgpo_gym.files import cache_dir, content_key, read_entry, write_entry

SMALLEST_FOLDER = 100
"""A folder with fewer games has no index: reading them takes a tenth of a second at most."""


def look_up(
    folder: Path, groups: Sequence[Sequence[Path]], examine: Callable[[Path], Any], *, code: str
) -> dict[Path, Any]:
    """Return the result of `examine` for the first file of each group. `examine` may read the group's other files too.

    Args:
        folder: where the files are; it names the index.
        groups: files below the folder that belong together.
        examine: gives something that JSON can hold. What it raises is raised here, and no index is written.
        code: changes whenever `examine` does.
    """
    if len(groups) < SMALLEST_FOLDER:
        return {first: examine(first) for first, *_ in groups}
    entry = cache_dir() / "alfworld" / "folders" / f"{content_key(str(folder))}.json"
    body = read_entry(entry, f"index {code}")
    before: dict[str, list[Any]] = json.loads(body) if body is not None else {}
    after: dict[str, list[Any]] = {}
    for first, *rest in groups:
        stamp = _stamp([first, *rest])
        known_stamp, known = before.get(str(first), (None, None))
        # The stamp is older than what is found, so that a file that changes meanwhile is read again next time.
        after[str(first)] = [stamp, known if known_stamp == stamp else examine(first)]
    if after != before:
        _write(entry, code, after)
    return {first: after[str(first)][1] for first, *_ in groups}


def _stamp(files: Sequence[Path]) -> list[int | None]:
    stamp: list[int | None] = []
    for file in files:
        try:
            stat = file.stat()
        except FileNotFoundError:
            stamp += [None, None]
        else:
            stamp += [stat.st_size, stat.st_mtime_ns]
    return stamp


def _write(entry: Path, code: str, content: dict[str, list[Any]]) -> None:
    try:
        write_entry(entry, f"index {code}", json.dumps(content).encode())
    except OSError as error:
        warnings.warn(
            f"The list of games is not kept: {error.filename}: {error.strerror}. Set HGPO_GYM_CACHE to a folder that "
            "can be written.",
            stacklevel=2,
        )
