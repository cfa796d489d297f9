"""A run that is killed (kill -9) again and again and resumed each time, against the same run left alone.

Moments are drawn from a seed: for a quarter of the kills while the process starts and finds its place in the run, for
the others while it trains, evaluates and saves a checkpoint after every iteration. After each kill the newest
checkpoint must be intact; at the end all metrics and evaluations must be those of an undisturbed run.
"""

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import torch

from hgpo_gym.config.compose import load_run
from hgpo_gym.runs.checkpoints import Checkpoints, read_state
from hgpo_gym.runs.directory import read_metrics, read_summary
from tests.support.small_runs import numbers, without_seconds

ALWAYS = ["checkpoint.every=1", "resume=auto"]
START_UPS = 4
"""One in so many kills falls into the start of the process."""


class Whole(NamedTuple):
    """The run that was left alone: seconds until it trained, and from then to its end."""

    starting: float
    training: float
    iterations: int


class Moment(NamedTuple):
    """So many seconds after an iteration's line; without an iteration, after the start of the process."""

    seconds: float
    iteration: int | None

    def __str__(self) -> str:
        after = "its start" if self.iteration is None else f"iteration {self.iteration}"
        return f"{self.seconds:5.2f} s after {after}"


def compare(out: Path, overrides: Sequence[str], kills: int, seed: int) -> list[str]:
    """Train once undisturbed and once killed `kills` times, in `out`, which is made anew. Returns what differs.

    With `distributed=ddp` or `fsdp2` among the settings, two processes of torchrun train, and are killed together.

    Raises:
        InvalidCheckpointError: after a kill no checkpoint was intact.
        RuntimeError: the newest was not, or a process failed by itself.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    whole = undisturbed(out / "whole", overrides)
    print(
        f"undisturbed: {whole.iterations} iterations in {whole.training:.1f} s, after a start of {whole.starting:.1f} s"
    )
    run_dir = out / "killed"
    generator = np.random.default_rng(seed)
    for number in range(1, kills + 1):
        if number % START_UPS == 0:
            moment = Moment(generator.uniform(0, whole.starting), None)
        else:
            moment = while_training(generator, whole, run_dir, kills - number + 1)
        kill(run_dir, overrides, moment)
        print(f"kill {number:2d}, {moment}: {state_of(run_dir, overrides)}", flush=True)
    finish(start(run_dir, overrides))
    lines = numbers(run_dir)
    print(f"resumed to its end: {len(lines)} lines of metrics, {len(lines[0])} numbers each")
    return list(differences(out / "whole", run_dir))


def while_training(generator: np.random.Generator, whole: Whole, run_dir: Path, kills_left: int) -> Moment:
    """A moment between where the run stands and its end, early enough to leave some of it for the kills to come."""
    newest = Checkpoints(run_dir / "checkpoints").newest()
    done = read_state(newest)["iteration"] if newest else 0
    most = 2 * max(0, whole.iterations - 1 - done) / (kills_left + 1)
    seconds = generator.uniform(0, whole.training / whole.iterations)
    return Moment(seconds, done + int(generator.uniform(0, most)))


def undisturbed(run_dir: Path, overrides: Sequence[str]) -> Whole:
    """Train without kills."""
    began = time.monotonic()
    process = start(run_dir, overrides)
    says(process, 0)
    training = time.monotonic()
    finish(process)
    return Whole(training - began, time.monotonic() - training, len(read_metrics(run_dir)))


def start(run_dir: Path, overrides: Sequence[str]) -> "subprocess.Popen[str]":
    """A process that trains, or goes on."""
    alone = not any(override.startswith("distributed=") for override in overrides)
    launcher = [] if alone else ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    return subprocess.Popen(
        [sys.executable, "-u", "-m", *launcher, "hgpo_gym", "train", *overrides, *ALWAYS, f"run_dir={run_dir}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def says(process: "subprocess.Popen[str]", iteration: int) -> bool:
    """Wait until it says that this iteration is done, or that it goes on from there; False if it ends before."""
    assert process.stdout is not None
    for line in process.stdout:
        output = re.match(r" *(\d+)/\d+  success|Going on after iteration (\d+)|(Before training)", line)
        if output and int(output[1] or output[2] or 0) >= iteration:
            return True
    return False


def finish(process: "subprocess.Popen[str]") -> None:
    """Let it go on to its end."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"The run failed:\n{output}")


def kill(run_dir: Path, overrides: Sequence[str], moment: Moment) -> None:
    """Start the run, kill it at that moment; one of its start comes early where it starts faster than it did alone."""
    process = start(run_dir, overrides)
    timer = threading.Timer(moment.seconds, kill_family, (process.pid,))
    if moment.iteration is None:
        timer.start()
        says(process, 0)
        kill_family(process.pid)
    elif says(process, moment.iteration):
        timer.start()
    process.communicate()
    timer.cancel()
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"The run ended before it was killed, {moment}: give it more iterations.")


def kill_family(process_id: int) -> None:
    """Kill a process and all that it has started, which torchrun puts in sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(process_id)
        for process in (leader, *leader.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def state_of(run_dir: Path, overrides: Sequence[str]) -> str:
    """Return the state after the kill. Raises RuntimeError if the newest checkpoint is not readable."""
    checkpoints = Checkpoints(run_dir / "checkpoints")
    half = "half a checkpoint removed or written, " if any(checkpoints.folder.glob(".iteration_*")) else ""
    metrics = len(read_metrics(run_dir))

    def refuse(reason: str) -> None:
        raise RuntimeError(reason)

    newest = checkpoints.latest_valid(refuse)
    if newest is None:
        return f"{half}no checkpoint yet"
    iteration = read_state(newest)["iteration"]
    settings = load_run(list(overrides))
    settings.model.load(settings, newest / "model")
    assert torch.load(newest / "update.pt") or iteration == 0
    ahead = f", metrics {metrics - iteration} ahead" if metrics > iteration else ""
    return f"{half}checkpoint {iteration} is intact{ahead}"


def differences(whole: Path, killed: Path) -> Iterator[str]:
    """Return the differences, except for seconds."""
    if len(numbers(whole)) != len(numbers(killed)):
        yield f"{len(numbers(whole))} lines of metrics, {len(numbers(killed))} with kills"
    for before, after in zip(numbers(whole), numbers(killed), strict=False):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield f"iteration {before['iteration']}, {name}: {before.get(name)}, with kills {after.get(name)}"
    if without_seconds(read_summary(whole)) != without_seconds(read_summary(killed)):
        yield f"summaries: see {whole} and {killed}"
