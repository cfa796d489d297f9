"""Checks of the promises about the tasks of a `TextEnv`; see `checker`."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

import cloudpickle

from hgpo_gym.envs.base import TextEnv, no_tasks

LIST_TASKS = """
import json, pickle, sys, gymnasium
env = gymnasium.make(pickle.loads(sys.stdin.buffer.read()), disable_env_checker=True)
print(json.dumps(list(env.unwrapped.task_ids)))
"""


def check_task_ids(env: TextEnv) -> None:
    """Check that task ids are distinct texts in a fixed order, and that `reset` accepts each."""
    assert not isinstance(env.task_ids, str), f"task_ids is the one text {env.task_ids!r}: write ({env.task_ids!r},)."
    assert isinstance(env.task_ids, Sequence), (
        f"task_ids is a {type(env.task_ids).__name__}, which has no fixed order: make it a tuple or a list, sorted."
    )
    ids = list(env.task_ids)
    assert ids, no_tasks(env)
    assert all(isinstance(task_id, str) and task_id for task_id in ids), "task_ids must be non-empty strings."
    assert len(set(ids)) == len(ids), f"task_ids has duplicates: {sorted({i for i in ids if ids.count(i) > 1})[:3]}."
    assert ids == list(env.task_ids), "task_ids changes from one look to the next: fix its order."
    for task_id in (ids[0], ids[-1]):
        is_path = PurePosixPath(task_id).is_absolute() or PureWindowsPath(task_id).is_absolute()
        assert not is_path, f"The task id {task_id!r} is a path, which another machine does not have: use the content."
        _, info = env.reset(options={"task_id": task_id})
        assert info["task_id"] == task_id, f"reset(options={{'task_id': {task_id!r}}}) began {info['task_id']!r}."


def check_split(env: TextEnv) -> None:
    """Check that `env.split` names the split in use, if the class has the option."""
    parameter = inspect.signature(type(env)).parameters.get("split")
    if parameter is None or env.spec is None:
        return
    requested = env.spec.kwargs.get("split", parameter.default)
    if isinstance(requested, str):
        assert env.split == requested, (
            f"split={requested!r} was asked for and env.split is {env.split!r}: set self.split."
        )


def check_options(env: TextEnv) -> None:
    """Check that unknown tasks and options raise an error that names them."""
    for options in ({"task_id": "no such task"}, {"no such option": 1}):
        try:
            env.reset(options=options)
        except ValueError:
            continue
        raise AssertionError(f"reset(options={options}) must raise ValueError: do not swallow what is not understood.")


def check_task_order(env: TextEnv) -> None:
    """Check that another process, in which sets have another order, makes the same environment with the same tasks."""
    try:
        spec = cloudpickle.dumps(env.spec)
    except Exception as error:  # whatever the options' own code may raise
        raise AssertionError(
            f"The options {env.spec.kwargs if env.spec else {}} cannot be sent to worker processes "
            f"({type(error).__name__}: {error}): take plain values."
        ) from error
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    child_environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    listed = subprocess.run(
        [sys.executable, "-c", LIST_TASKS], input=spec, env=child_environ, capture_output=True, check=False
    )
    assert listed.returncode == 0, (
        f"{type(env).__name__} cannot be made in another process, as workers need: {listed.stderr.decode()[-2000:]}"
    )
    tasks = json.loads(listed.stdout.splitlines()[-1])
    assert tasks == list(env.task_ids), (
        f"Another process lists {_difference(tasks, list(env.task_ids))}: make task_ids from content alone, and sort "
        "what comes from a set, from hash() or from a listing of files."
    )


def _difference(actual: list[str], expected: list[str]) -> str:
    if sorted(actual) == sorted(expected):
        return "the same tasks in another order"
    return f"other tasks ({len(actual)}, the first {actual[0]!r}; here {len(expected)}, the first {expected[0]!r})"
