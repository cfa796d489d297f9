"""Every key of a run with hostile values, and random lines: refused with exit status 2, or a run that works."""

import contextlib
import io
import math
import random
import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from hydra.core.override_parser.overrides_parser import OverridesParser

from hgpo_gym.cli.errors import CommandFailed, mistakes_explained
from hgpo_gym.config.compose import load_config
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import RunDirectory, flatten, read_metrics
from hgpo_gym.trainers.run import Run
from hgpo_gym.trainers.settings import RunSettings

BASE = [
    "model=tabular",
    "env.sections=2",
    "env.max_episode_steps=6",
    "rollout.num_tasks=2",
    "rollout.group_size=2",
    "trainer.iterations=1",
    "evaluation.decoding_seeds=1",
    "evaluation.num_envs=2",
    "evaluation.every=0",
]
"""A run of a second."""
LANGUAGE_MODEL = [setting for setting in BASE if setting != "model=tabular"] + ["warmstart.episodes=2"]
VALUES = ("null", "-1", "0", "1.5", "1e400", "abc", "''", "true", "[]", "[a,1]", "{a: 1}", "nan")
"""Each of which cannot be for most keys."""
HUGE = ("20261121", "1000000000000")
"""Refused, or no reason to run out of memory before the first rollout."""


class Outcome(NamedTuple):
    """The result of a command line: `refused` before anything was written, `ran`, or an error: `late` (refused
    after the run directory was made), `traceback`, `nonsense` (numbers that are none)."""

    line: tuple[str, ...]
    result: str
    said: str


class _Begins(BaseException):
    """The run would be made now."""


def keys(base: Sequence[str]) -> list[str]:
    """Every key of a run, in the order of its configuration; `run_dir` and what says how long it takes are the sweep's
    own."""
    return [key for key in flatten(load_config("config", base)) if key != "run_dir"]


def sweep(base: Sequence[str], values: Sequence[str] = VALUES, *, train: bool = False) -> Iterator[Outcome]:
    """Every key with every value. Raises RuntimeError where the run does not work without them."""
    if (plain := attempt((), partial(load_config, "config", base))).result != "ran":
        raise RuntimeError(plain.said)
    composed = load_config("config", base)
    parsed = {text: OverridesParser.create().parse_override(f"key={text}").value() for text in values}
    for key in keys(base):
        for text, value in parsed.items():
            yield attempt((f"{key}={text}",), partial(_changed, composed, key, value), train=train)


def random_lines(base: Sequence[str], count: int, seed: int = 0) -> Iterator[Outcome]:
    """Lines of one to three overrides, broken or not."""
    choice, known = random.Random(seed), keys(base)
    alphabet = "abc019.-+=[]{}()'\"\\$&|~^%#@!?,:;<>/* \t\u00e9\u2603"
    for _ in range(count):
        line = []
        for _ in range(choice.randint(1, 3)):
            value = choice.choice([*VALUES, "".join(choices(choice, alphabet))])
            key = choice.choice(
                [choice.choice(known), "".join(choices(choice, alphabet)), "+new.key", "~algo", "env", "algo"]
            )
            line.append(f"{key}={value}" if choice.random() < 0.9 else key)
        yield attempt(line, partial(load_config, "config", [*base, *line]))


def _changed(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {**config, first: _changed(config[first], rest, value) if rest else value}


def choices(choice: random.Random, alphabet: str) -> list[str]:
    return choice.choices(alphabet, k=choice.randint(0, 12))


def attempt(line: Sequence[str], compose: Callable[[], dict[str, Any]], *, train: bool = False) -> Outcome:
    """Run `hgpo-gym train LINE` until its model is made or, with `train`, to the end.

    Args:
        line: what is tried.
        compose: gives its configuration.
    """
    said, folder = io.StringIO(), Path(tempfile.mkdtemp())
    begin, begun = RunDirectory.begin, False

    def beginning(*arguments: Any) -> None:
        nonlocal begun
        begun = True
        begin(*arguments)

    def starting(_run: Run) -> None:
        raise _Begins

    changed = patch.object(RunDirectory, "begin", beginning) if train else patch.object(Run, "_begin", starting)
    try:
        with changed, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with mistakes_explained():
                settings = RunSettings.parse({**compose(), "run_dir": str(folder / "run")})
                with Run(settings, Progress()) as run:
                    run.train()
        numbers = [value for row in read_metrics(folder / "run") for value in row.values() if isinstance(value, float)]
        result = "ran" if all(map(math.isfinite, numbers)) else "nonsense"
    except _Begins:
        result = "ran"
    except CommandFailed:
        result = "late" if begun else "refused"
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        result = "traceback"
        said.write(traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(tuple(line), result, said.getvalue())


def main(random_count: int, seed: int) -> list[tuple[str, int, int]]:
    """A row a sweep: what, how many lines, how many of them were neither refused nor ran."""
    rows = []
    sweeps = {
        "settings of a table, trained": sweep(BASE, train=True),
        "settings of a language model": sweep(LANGUAGE_MODEL, (*VALUES, *HUGE)),
        "random lines": random_lines(BASE, random_count, seed),
    }
    for name, outcomes in sweeps.items():
        counted = Counter[str]()
        for outcome in outcomes:
            counted[outcome.result] += 1
            if outcome.result not in ("refused", "ran"):
                print(f"{outcome.result}: {outcome.line[-1]}: {outcome.said.strip().splitlines()[-1:]}", flush=True)
        print(f"{name}: {dict(counted)}", flush=True)
        rows.append((name, counted.total(), counted.total() - counted["refused"] - counted["ran"]))
    return rows
