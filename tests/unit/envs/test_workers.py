"""Sub-environments in worker processes: real ones, that are killed, stopped and slow."""

import copy
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, register
from hgpo_gym.envs.workers import WorkerDiedError, WorkerSubEnvs
from hgpo_gym.plugins import load_plugins
from tests.support.envs import GAME
from tests.support.worker_clock import LIMIT, worker_clock  # noqa: F401 - a fixture

FRAGILE, MAZE = "hgpo_gym_tests/Fragile-v0", "hgpo_gym/SignpostMaze-v0"


class Fragile(TextEnv):
    """Counts steps. Some actions do something to the process, the first time they are played or later."""

    task_ids = ("cat", "dog", "stop")

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def begin_episode(self, task_id):
        self.steps = 0
        if task_id == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        return self.turn(task=task_id)

    def take_action(self, action):
        first = not (self.folder / action).exists()
        (self.folder / action).touch()
        if action == "die" or (action == "die when replayed" and not first):
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "stop" or (action == "stop once" and first):
            os.kill(os.getpid(), signal.SIGSTOP)
        if action == "hang up":
            raise ConnectionResetError("by the environment itself")
        self.steps += 1
        return self.turn()

    def turn(self, **fields):
        return Turn(f"{self.task_id} {self.steps}", **fields)


register(FRAGILE, Fragile, max_episode_steps=9, description="for tests")


def follow_expert(env, steps, on_step=lambda step: None):
    observations, infos = env.reset(seed=3)
    seen = [observations]
    for step in range(steps):
        on_step(step)
        observations, rewards, terminations, truncations, infos = env.step(list(infos["expert_action"]))
        seen.append((observations, rewards.tolist(), terminations.tolist(), truncations.tolist()))
    return seen


@pytest.mark.promise("Worker processes change no number; a killed one is replaced, and its episodes go on.")
def test_workers_change_nothing_and_a_killed_one_is_replaced():
    options = {"num_tasks": 2, "group_size": 2, "expert": True}
    local = TextVectorEnv(MAZE, **options)
    expected = follow_expert(local, 9)
    workers = TextVectorEnv(MAZE, workers=2, **options)
    assert follow_expert(workers, 9) == expected
    with pytest.raises(TypeError, match="worker processes cannot be copied: make them with workers=0, or make another"):
        copy.deepcopy(workers)

    def kill_one(step):
        if step == 4:
            members = workers._sub_envs
            assert isinstance(members, WorkerSubEnvs)
            os.kill(members.process_ids[0], signal.SIGKILL)

    assert follow_expert(workers, 9, kill_one) == expected
    workers.close()


@pytest.mark.slow
def test_a_program_that_cannot_be_imported_again_is_refused_with_a_remedy():
    """Read from standard input; a script that starts its workers without a guard ends in the same way."""
    code = f"from hgpo_gym import TextVectorEnv; TextVectorEnv({MAZE!r}, num_tasks=1, workers=1).reset()"
    ended = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True)
    assert 'in a file, and put what it does under `if __name__ == "__main__":`, or set workers=0.' in ended.stderr
    assert "memory" not in ended.stderr


def fragile(folder, tasks=("cat", "dog"), **options):
    env = TextVectorEnv(FRAGILE, num_tasks=len(tasks), workers=1, folder=str(folder), **options)
    env.reset(options={"task_ids": tasks})
    return env


def test_a_worker_that_dies_at_the_same_step_again_is_an_error_that_names_the_task(tmp_path):
    env = fragile(tmp_path)
    with pytest.raises(
        WorkerDiedError, match=r"ended \(exit code -9\) twice at the same step: .* 1, task 'dog'"
    ) as error:
        env.step(["wait", "die"])
    assert (error.value.row, error.value.task_id) == (1, "dog")
    observations, _ = env.reset(options={"task_ids": ["dog", "cat"]})  # the next one starts with another process
    assert observations == ("dog 0", "cat 0")
    env.close()


class AtHome(Fragile):
    """Cannot be made in a process that another one started."""

    def __init__(self):
        super().__init__("")
        if multiprocessing.parent_process():
            raise LookupError("no licence here")


def test_a_worker_whose_environments_cannot_be_made_says_why():
    register("hgpo_gym_tests/AtHome-v0", AtHome, max_episode_steps=9, description="for tests")
    env = TextVectorEnv("hgpo_gym_tests/AtHome-v0", num_tasks=1, workers=1)
    with pytest.raises(WorkerDiedError, match=r"not make its environments \(LookupError: no licence here\)") as error:
        env.reset()
    assert "Out of memory" not in str(error.value)
    env.close()


def test_an_environment_of_a_file_that_was_loaded_is_made_in_workers(tmp_path):
    file = tmp_path / "game_in_a_file.py"
    file.write_text(GAME.format(word="now", name="InAFile"))
    load_plugins([str(file)])
    env = TextVectorEnv("warm_start_tests/InAFile-v0", num_tasks=2, workers=2)
    assert env.reset()[0] == ("Say now.", "Say now.")
    env.close()


def test_a_worker_that_dies_while_it_is_brought_back_is_an_error_too(tmp_path):
    env = fragile(tmp_path)
    env.step(["wait", "die when replayed"])
    os.kill(env._sub_envs.process_ids[0], signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"ended \(exit code -9\) during its replay: .* 1, task 'dog'"):
        env.step(["wait", "wait"])
    env.close()


@pytest.mark.usefixtures("worker_clock")
def test_a_worker_that_hangs_is_replaced_and_one_that_hangs_again_is_an_error_that_names_the_task(tmp_path):
    env = fragile(tmp_path, worker_timeout=LIMIT)
    env.step(["wait", "wait"])
    observations, *_ = env.step(["wait", "stop once"])
    assert observations == ("cat 2", "dog 2")
    with pytest.raises(WorkerDiedError, match=rf"within {LIMIT:g} s twice at the same step: .*, task 'dog'"):
        env.step(["wait", "stop"])
    with pytest.raises(WorkerDiedError, match=rf"within {LIMIT:g} s twice at the same begin: .*, task 'stop'"):
        env.reset(options={"task_ids": ["cat", "stop"]})
    env.close()


@pytest.mark.slow
def test_a_stopped_worker_is_named_while_it_is_waited_for(tmp_path, monkeypatch):
    env = fragile(tmp_path)
    monkeypatch.setattr("hgpo_gym.envs.workers.PATIENCE", 0.1)
    [worker] = env._sub_envs.process_ids
    messages = []

    def wake(message, *_):
        messages.append(str(message))
        os.kill(worker, signal.SIGCONT)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", wake)
        observations, *_ = env.step(["wait", "stop"])
    assert observations == ("cat 1", "dog 1")
    assert (
        f"No response from worker process {worker} for 0.1 s: step of sub-environment 0, 1. Stopped by" in messages[0]
    )
    env.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0, "worker_timeout": 5}, "worker_timeout=5: only a worker process can be given up: set workers=1"),
        ({"workers": 1, "worker_timeout": 0}, "worker_timeout=0: a number of seconds above 0, or None"),
    ],
)
def test_time_limits_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TextVectorEnv(MAZE, 1, **options)


def test_after_an_error_in_one_worker_responses_of_the_others_are_theirs():
    env = TextVectorEnv(MAZE, num_tasks=2, workers=2)
    env.reset(options={"task_ids": ["red-red-blue", "red-blue-red"], "group_seeds": [1, 2]})
    start = env.starts[0]
    with pytest.raises(ValueError, match="ends at step 24 of a prefix of 24"):
        env.begin_at({0: (start, ["no"] * 24, 1), 1: (env.starts[1], ["walk on"], 1)})
    observations, _ = env.reset(options={"task_ids": ["blue-red-red", "green-red-red"]})
    assert ["blue" in observations[0], "green" in observations[1]] == [True, True]
    env.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_after_an_error_the_episode_has_ended_and_the_others_go_on(tmp_path, workers):
    env = TextVectorEnv(FRAGILE, 1, 3, workers=workers, folder=str(tmp_path))
    env.reset(options={"task_ids": ["cat"]})
    with pytest.raises(ConnectionResetError, match="by the environment itself"):
        env.step(["wait", "hang up", "wait"])
    observations, *_, infos = env.step(["wait"] * 3)
    assert observations == ("cat 2", "cat 0", "cat 2")
    assert env.active.tolist() == [True, False, True]
    assert infos["failure"][1] == "ConnectionResetError: by the environment itself"
    env.close()
