"""Poor machines: little memory, other hash seeds and other numbers of threads."""

import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.attack.settings import BASE
from tests.support.small_runs import numbers

MIB = 1 << 20
MODELS = (["model=tabular"], ["model=features"], ["model=tiny", "warmstart.episodes=2"])


def main(times: int, seed: int) -> list[tuple[str, int, int]]:
    """Return a row for each attack: its name, the runs, and how many ended otherwise than they should."""
    choice = random.Random(seed)
    return [little_memory(times, choice), other_machines(times, choice)]


def little_memory(times: int, choice: random.Random) -> tuple[str, int, int]:
    """Runs with a limit of address space: they work, or end with a message about memory."""
    wrong = 0
    for _ in range(times):
        limit, model = choice.randrange(700, 6000) * MIB, choice.choice(MODELS)
        with tempfile.TemporaryDirectory() as folder:
            ended = _train(Path(folder) / "run", model, limit=limit)
        output = ended.stdout + ended.stderr
        explained = (
            ended.returncode in (1, 2) and re.search("memory|address space", output) and "Traceback" not in output
        )
        if ended.returncode and not explained:
            wrong += 1
            print(f"{limit // MIB} MiB, {model[0]}: {ended.returncode}: {output[-300:]}", flush=True)
    return "little memory", times, wrong


def other_machines(times: int, choice: random.Random) -> tuple[str, int, int]:
    """The same run with other hash seeds and numbers of threads has the same numbers."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for number, model in enumerate(MODELS[:2]):
            runs = [Path(name) / f"{number}-{count}" for count in range(times)]
            for count, run in enumerate(runs):
                threads = str(choice.choice([1, 2, 4]) if count else 1)
                variables: dict[str, Any] = {"PYTHONHASHSEED": str(choice.randrange(2**32)), "OMP_NUM_THREADS": threads}
                _train(run, model, **variables).check_returncode()
            different = [run for run in runs if numbers(run) != numbers(runs[0])]
            wrong += len(different)
            print(f"{model[0]}: {len(different)} of {times} runs have other numbers", flush=True)
    return "hash seeds and threads", 2 * times, wrong


def _train(
    run: Path, model: list[str], *, limit: int | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    words = [word for word in BASE if not word.startswith("model=")]
    set_limit = None if limit is None else partial(resource.setrlimit, resource.RLIMIT_AS, (limit, limit))
    return subprocess.run(
        [sys.executable, "-m", "hgpo_gym", "train", *words, *model, f"run_dir={run}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
        preexec_fn=set_limit,
    )
