"""verifiers' evaluation plays our environments, with a chat server that knows the way."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hgpo_gym.adapters.single_episode import EpisodeStep, step_batch
from hgpo_gym.adapters.verifiers import SYSTEM_PROMPT, GameEnv, GameTaskset, GameTasksetConfig, action_in
from hgpo_gym.advantages import estimate
from hgpo_gym.envs.registration import make
from tests.support import ROOT
from tests.support.chat_server import serving, streamed

PACKAGE = ROOT / "examples" / "verifiers_package"
TASKS = 2
"""From the second on: the shop's expert does not find what the first one wants."""


def expert_of(env_id, options):
    """Return an expert's response to a conversation: it plays the same task in parallel."""
    env, one_at_a_time = make(env_id, expert=True, **options), threading.Lock()

    def behave(server, body):
        replies = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
        opening = next(message["content"] for message in body["messages"] if message["role"] == "user")
        with one_at_a_time:
            for task_id in env.unwrapped.task_ids[1 : 1 + TASKS]:
                observation, info = env.reset(seed=0, options={"task_id": task_id})
                if opening.startswith(f"{info['task']}\n{observation}"):
                    for reply in replies:
                        info = env.step(action_in(reply))[-1]
                    return streamed(f"I know. <action>{info['expert_action']}</action>")
        raise LookupError(opening)

    return behave


def evaluate(folder, server, env_id, options, *arguments):
    """`vf-eval hgpo-gym-games`; the traces that it wrote."""
    command = [
        Path(sys.executable).with_name("vf-eval"), "hgpo-gym-games", *("--env.taskset.env-id", env_id),
        *("--env.taskset.options", json.dumps(options)), *("--client.base-url", server.url),
        *("--client.api-key-var", "KEY_OF_THE_TEST"), *("--model", "tiny"), *("--output-dir", str(folder)),
        "--run.dir=run", "--no-push", "--no-rich", *arguments,
    ]  # fmt: skip
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{PACKAGE}:{PACKAGE.parents[1]}",
        "KEY_OF_THE_TEST": "none",
        "PATH": path,
    }
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    episodes = [json.loads(line) for line in (folder / "run" / "traces.jsonl").read_text().splitlines()]
    return [trace for episode in episodes for trace in episode["traces"]]


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("hgpo_gym/SignpostMaze-v0", {"split": "all", "sections": 1}),
        ("hgpo_gym/ALFWorld-v0", {"split": "valid_seen"}),
        ("hgpo_gym/WebShop-v0", {"split": "generated"}),
    ],
    ids=["maze", "alfworld", "webshop"],
)
def test_an_expert_behind_an_endpoint_wins(env_id, options, tmp_path, request):
    if "ALFWorld" in env_id:
        options = {**options, "data": str(request.getfixturevalue("alfworld_data"))}
    with serving(expert_of(env_id, options)) as server:
        traces = evaluate(tmp_path, server, env_id, options, "--select.skip", "1", "-n", str(TASKS))
    assert len(traces) == TASKS
    for trace in traces:
        steps = [EpisodeStep(**step) for step in trace["info"]["steps"]]
        assert trace["rewards"]["episode_return"]["score"] == sum(step.reward for step in steps) > 0
        assert trace["metrics"]["won"] == 1
        assert all(step.valid for step in steps)


@pytest.mark.promise("Traces of verifiers get our credit assignment.")
def test_the_steps_of_a_trace_are_those_of_credit_assignment(tmp_path):
    """One task, four rollouts of a policy that is right half of the time: hgpo finds the step that decides."""
    count = iter(range(1000))

    def behave(server, body):
        *_, last = body["messages"]
        if "open" in last["content"]:
            return streamed(f"<action>open {('red', 'blue')[next(count) % 2]} door</action>")
        return streamed("walk on")

    options = {"split": "all", "sections": 1, "max_episode_steps": 3}
    with serving(behave) as server:
        traces = evaluate(tmp_path, server, "hgpo_gym/SignpostMaze-v0", options, "-n", "1", "-r", "4", "-c", "1")
    batch = step_batch(["red"] * 4, [[EpisodeStep(**step) for step in trace["info"]["steps"]] for trace in traces])
    values = estimate("gigpo", batch, gamma=1.0, norm="mean_norm")
    won = np.array([trace["metrics"]["won"] for trace in traces])[batch.trajectory] == 1
    np.testing.assert_array_equal(batch.success, won)
    assert 0 < won.sum() < len(won)
    assert (values[won] > 0).all()
    assert (values[~won] < 0).all()


class Walker:
    """A player of verifiers' who walks on and opens the red door; what it heard."""

    def __init__(self):
        self.heard, self.player = [], self
        self.trace = SimpleNamespace(info={}, record_reward=lambda *_: None, record_metric=lambda *_: None)

    @asynccontextmanager
    async def interaction(self, _task):
        yield self

    async def turn(self, response):
        self.heard.append(response)
        return SimpleNamespace(terminated=False, last_reply="open red door" if "open red" in response else "walk on")


def test_chance_differs_by_rollout():
    config = GameTasksetConfig(options={"split": "all", "slip": 0.5, "max_episode_steps": 20})
    task, walkers = next(iter(GameTaskset(config))), [Walker() for _ in range(20)]
    for walker in walkers:
        asyncio.run(GameEnv.run(None, task, walker))
    assert len({tuple(walker.heard) for walker in walkers}) > 1
    assert len({walker.heard[0] for walker in walkers}) == 1  # they begin alike


def test_tasks_are_those_of_the_split_in_its_order():
    config = GameTasksetConfig(options={"split": "test"})
    tasks = list(GameTaskset(config))
    assert tuple(task.data.id for task in tasks) == make(config.env_id, split="test").unwrapped.task_ids
    assert {task.data.system_prompt for task in tasks} == {SYSTEM_PROMPT}


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("walk on", "walk on"),
        ("<think>So.</think><action> walk on </action>", "walk on"),
        ("<action>a</action> no: <action>b</action>", "b"),
        ("<action>walk on", "walk on"),
        ("", ""),
    ],
)
def test_the_action_of_a_reply(reply, action):
    assert action_in(reply) == action
