"""Real runs that take a second: a table learns a short maze."""

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hgpo_gym.config.compose import load_run
from hgpo_gym.config.of_run import default_settings
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.open_run import open_run
from hgpo_gym.trainers.run import Run

SETTINGS = [
    "model=tabular", "env.sections=2", "env.max_episode_steps=10", "rollout.num_tasks=2",
    "rollout.group_size=4", "trainer.iterations=4", "trainer.mini_batch_size=32", "evaluation.every=2",
    "evaluation.decoding_seeds=2", "checkpoint.every=100",
]  # fmt: skip

TINY = [
    "env.sections=1", "env.max_episode_steps=8", "rollout.num_tasks=2", "rollout.group_size=4",
    "warmstart.episodes=20", "warmstart.epochs=1", "tiny.hidden_size=32", "tiny.heads=2",
    "evaluation.split=train", "evaluation.every=3", "evaluation.decoding_seeds=1", "checkpoint.every=100",
    "trainer.mini_batch_size=16",
]  # fmt: skip
"""The same by a language model made from scratch."""

MACHINE = ("seconds", "tokens_per_second", "memory_gib")
"""Metrics that depend on the machine."""


def settings(run_dir, *overrides, base=SETTINGS):
    """Return the settings of the run that `train` trains."""
    return load_run([*base, f"run_dir={run_dir}", *overrides])


def opened(run):
    """The directory of a run with these settings, as training opens it."""
    return open_run(run.run_dir, run.resume, run.resolved, run.trainer.iterations, default_settings)


def train(run_dir, *overrides, base=SETTINGS, progress=None):
    """A finished run in `run_dir`: the settings of `base`, and `overrides` on top. Returns its summary."""
    with Run(settings(run_dir, *overrides, base=base), progress or Progress()) as run:
        return run.train()


_FINISHED: dict[str, tempfile.TemporaryDirectory[str]] = {}


def finished(run_dir, *overrides, base=SETTINGS):
    """Make `run_dir` a copy of the run that `train` trains; one is trained for all tests of a process that ask for it.
    Its config.yaml names another folder. Returns `run_dir`."""
    words = load_run([*base, *overrides, "run_dir=run"]).resolved
    if (key := json.dumps(words, sort_keys=True)) not in _FINISHED:
        _FINISHED[key] = tempfile.TemporaryDirectory(prefix="finished-run")
        train(Path(_FINISHED[key].name) / "run", *overrides, base=base)
    return shutil.copytree(Path(_FINISHED[key].name) / "run", run_dir, dirs_exist_ok=True)


class CtrlC(Progress):
    """Presses it when a line says that so many iterations are done."""

    def __init__(self, iteration):
        super().__init__()
        self.iteration = iteration

    def line(self, text):
        if text.split("/")[0].strip() == str(self.iteration):
            os.kill(os.getpid(), signal.SIGINT)


def train_until(iteration, run_dir, *overrides, base=SETTINGS):
    """The same run, broken off after an iteration: a checkpoint of it is there, and no end."""
    with Run(settings(run_dir, *overrides, base=base), CtrlC(iteration)) as run, pytest.raises(KeyboardInterrupt):
        run.train()


def whole_and_resumed(folder, *overrides, ended=2, iterations=4, base=SETTINGS):
    """Train a run, and the same that ended sooner and was resumed. Returns their directories."""
    whole, resumed = folder / "whole", folder / "resumed"
    train(whole, *overrides, f"trainer.iterations={iterations}", base=base)
    train(resumed, *overrides, f"trainer.iterations={ended}", base=base)
    train(resumed, *overrides, f"trainer.iterations={iterations}", "resume=must", base=base)
    return whole, resumed


def numbers(run_dir):
    """The metrics of a run, a dictionary an iteration, without what was timed."""
    return [without_seconds(line) for line in read_metrics(run_dir)]


def training_numbers(run_dir):
    """The same without evaluations, of which a run has one more where it once ended earlier."""
    return [
        {name: value for name, value in line.items() if not name.startswith("evaluation_")} for line in numbers(run_dir)
    ]


def without_seconds(value: Any) -> Any:
    """The same, without what was timed, and the memory."""
    if isinstance(value, dict):
        return {name: without_seconds(part) for name, part in value.items() if not name.startswith(MACHINE)}
    return [without_seconds(part) for part in value] if isinstance(value, list) else value
