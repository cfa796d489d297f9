"""Hostile names: plugins by paths that are none, or do harm when imported, and names and folders for `new-env`."""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.attack.hostile_runs import outcome_of, row
from benchmarks.attack.settings import BASE

PLUGINS: dict[str, Callable[[Path], object]] = {
    "folder.py": lambda path: path.mkdir(),
    "pipe.py": os.mkfifo,
    "itself.py": lambda path: path.symlink_to(path.name),
    "device.py": lambda path: path.symlink_to("/dev/null"),
    "not_utf8.py": lambda path: path.write_bytes(b"\xff\xfe = 1"),
    "nul.py": lambda path: path.write_bytes(b"x = 1\x00"),
    "deep.py": lambda path: path.write_text("(" * 10_000),
    "syntax.py": lambda path: path.write_text("def"),
    "leaves.py": lambda path: path.write_text("raise SystemExit(0)"),
    "exits.py": lambda path: path.write_text("import sys; sys.exit('done')"),
    "circle.py": lambda path: path.write_text("import circle"),
}
NAMES = (
    "",
    ".",
    "..",
    "/",
    "-",
    "~nobody_here/x",
    "\x00",
    "a" * 5000,
    "a\nb",
    "..x",
    "os:system",
    "json.",
    "\ud800",
    "é",
)
PARTS = (
    "../",
    "/tmp/",
    "~",
    "my_game",
    "json",
    "class",
    "-",
    " ",
    "\n",
    "\x00",
    "{x}",
    "$(id)",
    "'",
    '"',
    "é",
    "a" * 300,
)


def main(times: int, seed: int) -> list[tuple[str, int, int]]:
    """Return a row for each attack: its name, the tries, and how many neither worked nor were refused by a message."""
    choice = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        return [row("plugins", _plugins(Path(name))), row("names for new-env", _new_envs(Path(name), times, choice))]


def _plugins(folder: Path) -> Iterator[str]:
    for name, make in PLUGINS.items():
        make(folder / name)
    # A plugin that ends Python without a word would look like a run that worked.
    for number, plugin in enumerate([*(str(folder / name) for name in PLUGINS), *NAMES]):
        run = folder / f"run{number}"
        outcome = outcome_of(["train", *BASE, f"run_dir={run}", f"plugins=[{plugin!r}]"])
        yield outcome if outcome != "worked" or run.exists() else f"{plugin[:50]!r} ended the command without a word"


def _new_envs(folder: Path, times: int, choice: random.Random) -> Iterator[str]:
    for number in range(times):
        name = "".join(choice.choices(PARTS, k=choice.randint(1, 3)))
        target = folder / f"new{number}"
        outcome = outcome_of(["new-env", "--to", target, "--", name])
        outside = [path for path in target.rglob("*") if not path.resolve().is_relative_to(target)]
        yield outcome if not outside else f"{name!r} wrote {outside[0]}"
