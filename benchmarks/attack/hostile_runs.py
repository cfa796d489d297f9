"""Run directories of somebody else: values replaced at random, links, pipes and folders in place of files."""

import contextlib
import gzip
import io
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.attack.settings import BASE
from hgpo_gym.cli.main import main as hgpo_gym
from hgpo_gym.config.compose import load_run
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.run import Run

SECONDS = 120
"""A command that takes longer hangs."""
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 10**400, 1e308, float("nan"), "", "\x1b[31m", "9" * 5000),
    *([], [[]], {}, {"a": [1]}, [None] * 3),
)
FILES = ("config.yaml", "summary.json", "metrics.jsonl", "launches.jsonl", "rollouts/iteration_0001.json.gz")
MORE = (
    ".config.yaml.new",
    "log.txt",
    "report.html",
    "report.md",
    ".report_files",
    ".report.html.new",
    "tables/runs.csv",
)
"""Places that a command may write to, beside the files of a run."""
PLACES: dict[str, Callable[[Path, Path], object]] = {
    "a pipe": lambda path, _: os.mkfifo(path),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "a link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "a link to a file": lambda path, victim: path.symlink_to(victim),
    "a hard link": lambda path, victim: os.link(victim, path),
    "a folder": lambda path, _: path.mkdir(),
}


def main(times: int, seed: int) -> list[tuple[str, int, int]]:
    """Return a row for each attack: its name, the tries, and how many neither worked nor were refused with an
    explanation, or changed a file outside the run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with contextlib.redirect_stdout(io.StringIO()), Run(_settings(folder / "run"), Progress()) as training:
            training.train()
        rows = [
            row(file, (_with_value(folder, file, choice) for choice in _choices(file, times, seed))) for file in FILES
        ]
        for what, make in PLACES.items():
            rows.append(
                row(f"{what} in a run", (_with_place(folder, make, choice) for choice in _choices(what, times, seed)))
            )
        return rows


def _settings(run: Path, *overrides: str) -> Any:
    return load_run([*BASE, f"run_dir={run}", *overrides])


def _choices(name: str, times: int, seed: int) -> Iterator[random.Random]:
    return (random.Random(f"{name} {number} {seed}") for number in range(times))


def row(name: str, outcomes: Iterator[str]) -> tuple[str, int, int]:
    """Count outcomes for the table of attacks."""
    counts = Counter(outcomes)
    print(f"{name}: {dict(counts)}", flush=True)
    return name, counts.total(), counts.total() - counts["explained"] - counts["worked"]


def _with_value(folder: Path, name: str, choice: random.Random) -> str:
    """Replace a value of a file, and read the run."""
    file = folder / "run" / name
    original = file.read_bytes()
    file.write_bytes(_packed(file, changed(_unpacked(file, original), choice)))
    outcome = outcome_of(
        ["inspect", file.parents[1], "--task", "1"] if file.suffix == ".gz" else ["report", file.parent]
    )
    file.write_bytes(original)
    return outcome


def _with_place(folder: Path, make: Callable[[Path, Path], object], choice: random.Random) -> str:
    """Put something else in the place of a file or folder of a run, and read or resume the run."""
    run, victim = folder / "copy", folder / "victim"
    shutil.copytree(folder / "run", run)
    victim.write_text("victim")
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    place = run / choice.choice([*names, *MORE])
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    make(place, victim)
    train = ["train", *BASE, f"run_dir={run}", "resume=auto", "trainer.iterations=2"]
    command: list[Any] = choice.choice(
        [["report", run], ["inspect", run, "--task", "1"], ["eval", f"run={run}"], train]
    )
    outcome = outcome_of(command)
    shutil.rmtree(run)
    return outcome if victim.read_text() == "victim" else f"{command[0]} changed a file elsewhere by {place.name}"


def outcome_of(command: Sequence[Any]) -> str:
    """Run a command in this process. Return `worked`, `explained`, or what was wrong."""
    output = io.StringIO()
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            hgpo_gym([str(word) for word in command])
        return "worked"
    except SystemExit as end:
        if end.code in (0, 2) and "Traceback" not in output.getvalue():
            return "explained" if end.code else "worked"
        return f"{command[0]} ended with {end.code}: {output.getvalue()[-100:]}"
    except Exception as error:  # noqa: BLE001 - these are what is looked for
        return f"{command[0]}: {type(error).__name__}: {error}"[:150]
    finally:
        signal.alarm(0)


def _hangs(*_: object) -> None:
    raise RuntimeError(f"it takes more than {SECONDS} s")


def _unpacked(file: Path, content: bytes) -> Any:
    if file.suffix == ".yaml":
        return yaml.safe_load(content)
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in content.splitlines()]
    return json.loads(gzip.decompress(content) if file.suffix == ".gz" else content)


def _packed(file: Path, content: Any) -> bytes:
    if file.suffix == ".jsonl" and isinstance(content, list):
        return "".join(json.dumps(line) + "\n" for line in content).encode()
    text = json.dumps(content).encode()
    return gzip.compress(text) if file.suffix == ".gz" else text


def changed(content: Any, choice: random.Random) -> Any:
    """Return the content with one value in it replaced."""
    if isinstance(content, dict | list) and content and choice.random() < 0.8:
        copy: Any = dict(content) if isinstance(content, dict) else list(content)
        place = choice.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
        copy[place] = changed(copy[place], choice)
        return copy
    return choice.choice(VALUES)
