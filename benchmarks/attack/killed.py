"""Processes that are killed or stopped at random moments: what is started again ends with the same numbers."""

import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from benchmarks.attack.settings import BASE
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.envs.scienceworld import jvm
from hgpo_gym.envs.workers import WorkerSubEnvs
from hgpo_gym.runs.directory import read_metrics
from tests.checks import killed_run
from tests.support.small_runs import TINY, numbers
from tests.verl.cpu_run import MAZE as MAZE_BY_VERL
from tests.verl.cpu_run import cpu_command
from tests.verl.maze_model import save_maze_model

MAZE = "hgpo_gym/SignpostMaze-v0"
LEAGUE = ["environments=[{name: maze, model: tabular}]", "seeds=2", "algos=[grpo,hgpo]", "jobs=2"]
Row = tuple[str, int, int]


def main(times: int, seed: int) -> list[Row]:
    """Return a row for each attack: its name, the kills, and how many ended otherwise than undisturbed."""
    with tempfile.TemporaryDirectory() as name:
        folder, choice = Path(name), random.Random(seed)
        return [
            torchrun(folder, times, seed),
            command("league", folder, ["league", *BASE, *LEAGUE], times, choice),
            command("eval", folder, ["eval", *_trained(folder)], times, choice),
            workers(5 * times, choice),
            java(times, choice),
            verl(folder, max(1, times // 5), choice),
        ]


def torchrun(folder: Path, times: int, seed: int) -> Row:
    """Two processes that train together, killed and resumed."""
    overrides = [*TINY, "trainer.iterations=12", "distributed=ddp", "model.device=cpu"]
    found = killed_run.compare(folder / "torchrun", overrides, times, seed)
    print("\n".join(found), flush=True)
    return "torchrun, two processes killed", times, len(found)


def _trained(folder: Path) -> list[str]:
    run = folder / "trained"
    subprocess.run([sys.executable, "-m", "hgpo_gym", "train", *BASE, f"run_dir={run}"], check=True, stdout=-3)
    return [f"run={run}", "evaluation.decoding_seeds=20"]


def command(name: str, folder: Path, words: Sequence[str], times: int, choice: random.Random) -> Row:
    """A command that is killed at random moments, and then left to its end."""
    results: list[object] = []
    seconds = 0.0
    for out, kills in ((folder / f"{name}-whole", 0), (folder / f"{name}-killed", times)):
        line = [sys.executable, "-m", "hgpo_gym", *words, *([f"out={out}"] if name == "league" else [])]
        began = time.monotonic()
        for _ in range(kills):
            process = subprocess.Popen(line, stdout=-3, stderr=-3)
            time.sleep(choice.uniform(0, seconds))
            killed_run.kill_family(process.pid)
            process.wait()
        ended = subprocess.run(line, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        ended.check_returncode()
        results.append(_found(out) if name == "league" else _without_seconds(ended.stdout))
    wrong = int(results[0] != results[1])
    print(f"{name}, killed {times} times: {results[1] if wrong else 'the same'}", flush=True)
    return f"{name} killed", times, wrong


def _found(out: Path) -> list[tuple[str, object]]:
    runs = sorted(path.parent for path in out.rglob("metrics.jsonl"))
    return [(str(run.relative_to(out)), numbers(run)) for run in runs if read_metrics(run)]


def _without_seconds(output: str) -> str:
    return re.sub(r"[\d.]+ (s|ms|min|steps/s|tokens/s)\\b", "", output)


def workers(times: int, choice: random.Random) -> Row:
    """Worker processes that are killed, or stopped for good, between two steps: the texts are those of one process."""

    def lose(env: TextVectorEnv) -> None:
        assert isinstance(env._sub_envs, WorkerSubEnvs)
        signals = [signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]
        os.kill(choice.choice(env._sub_envs.process_ids), choice.choice(signals))

    make_envs = partial(TextVectorEnv, MAZE, 4, 2)
    in_workers = partial(make_envs, workers=4, worker_timeout=5.0)
    return _disturbed("workers killed or stopped", make_envs, in_workers, times, choice, lose)


def java(times: int, choice: random.Random) -> Row:
    """ScienceWorld's virtual machine with 16 episodes, killed or stopped between two steps: the texts are the same."""

    def lose(_env: TextVectorEnv) -> None:
        assert jvm._MACHINES.jvm is not None
        jvm._MACHINES.jvm.process.send_signal(choice.choice([signal.SIGKILL, signal.SIGSTOP]))

    make_envs = partial(TextVectorEnv, "hgpo_gym/ScienceWorld-v0", 8, 2, actions="seen", simplifications="easy")
    timeout, jvm.READ_TIMEOUT = jvm.READ_TIMEOUT, 15.0
    try:
        return _disturbed("Java machines killed or stopped", make_envs, make_envs, times, choice, lose)
    finally:
        jvm.READ_TIMEOUT = timeout


def verl(folder: Path, times: int, choice: random.Random) -> Row:
    """A process of Ray is killed in a training by verl: the command ends, and the same command goes on to the end."""
    name = "processes of verl killed"
    if importlib.util.find_spec("verl") is None:
        print("verl is not installed: its processes are not killed.", flush=True)
        return name, 0, 0
    save_maze_model(folder / "verl-model")
    run, iterations = folder / "verl", times + 2
    more = [f"model.path={folder / 'verl-model'}", f"run_dir={run}", f"trainer.iterations={iterations}", "resume=auto"]
    line, environment = cpu_command([*MAZE_BY_VERL, "checkpoint.every=1", *more], [], folder / "recorded")
    wrong = sum(_lose_process_of_ray(line, environment, run, choice) for _ in range(times))
    subprocess.run(line, env=environment, check=True, stdout=-3, stderr=-3)
    found = [metrics["iteration"] for metrics in read_metrics(run)]
    wrong += int(found != list(range(1, iterations + 1)))
    print(f"{name}: {times} times, iterations {found}", flush=True)
    return name, times, wrong


def _lose_process_of_ray(line: Sequence[str], environment: dict[str, str], run: Path, choice: random.Random) -> bool:
    """Kill a process of verl after the next iteration. Returns whether the command, or a process of it, is left."""
    before = len(read_metrics(run))
    command = subprocess.Popen(line, env=environment, stdout=-3, stderr=-3)
    while command.poll() is None and len(read_metrics(run)) == before:
        time.sleep(0.5)
    family = psutil.Process(command.pid).children(recursive=True) if command.poll() is None else []
    actors = [process for process in family if re.match(r"ray::(?!IDLE)", process.name())]
    if actors:
        lost = choice.choice(actors)
        print(f"killed after iteration {before + 1}: {lost.name()}", flush=True)
        lost.kill()
    try:
        command.wait(timeout=300)
    except subprocess.TimeoutExpired:
        killed_run.kill_family(command.pid)
    left = psutil.wait_procs(family, timeout=30)[1]
    for process in left:
        process.kill()
    return command.wait() == -signal.SIGKILL or bool(left)


def _disturbed(
    name: str,
    undisturbed: Callable[[], TextVectorEnv],
    disturbed: Callable[[], TextVectorEnv],
    times: int,
    choice: random.Random,
    lose: Callable[[TextVectorEnv], None],
) -> Row:
    seed = choice.randrange(2**31)
    whole = _episode(undisturbed(), seed, times, lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each loss is announced
        wrong = int(_episode(disturbed(), seed, times, lose) != whole)
    print(f"{name}: {times} times, texts {'differ' if wrong else 'are the same'}", flush=True)
    return name, times, wrong


def _episode(env: TextVectorEnv, seed: int, steps: int, lose: Callable[[TextVectorEnv], None]) -> list[object]:
    """Return the texts and rewards of so many steps; `lose` is called before each of them."""
    observations, infos = env.reset(seed=seed)
    texts: list[object] = [observations]
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        if not env.active.any():
            observations, infos = env.reset()
        lose(env)
        # An episode that has ended has no actions; what it is given is not read.
        actions = [str(rng.choice(actions or [""])) for actions in infos["admissible_actions"]]
        observations, rewards, _, _, infos = env.step(actions)
        texts.append((observations, rewards.tolist()))
    env.close()
    return texts
