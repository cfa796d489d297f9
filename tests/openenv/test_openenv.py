"""OpenEnv's client plays our environments on a real server."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from openenv import GenericEnvClient

from hgpo_gym.adapters.openenv import GameServer, make_app
from hgpo_gym.adapters.single_episode import OVER
from hgpo_gym.envs.registration import make
from tests.support import ROOT

FOLDER = ROOT / "examples" / "openenv_server"


@contextmanager
def served(*arguments, **options):
    """The address of a server that is up."""
    server = uvicorn.Server(uvicorn.Config(make_app(*arguments, **options), port=0, log_level="warning"))
    up = threading.Event()

    async def startup(sockets=None):
        await uvicorn.Server.startup(server, sockets)
        up.set()

    server.startup = startup
    thread = threading.Thread(target=server.run)
    thread.start()
    up.wait()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.promise("Environments can be played through OpenEnv's client.")
@pytest.mark.parametrize("name", ["maze", "alfworld", "webshop"])
def test_an_expert_wins_through_their_client(name, request):
    """And hears, turn by turn, what it hears without a server."""
    env_id, options = {
        "maze": ("hgpo_gym/SignpostMaze-v0", {"split": "test"}),
        "alfworld": ("hgpo_gym/ALFWorld-v0", {"split": "valid_seen"}),
        "webshop": ("hgpo_gym/WebShop-v0", {"split": "generated"}),
    }[name]
    if name == "alfworld":
        options["data"] = request.getfixturevalue("alfworld_data")
    here = make(env_id, expert=True, **options)
    with served(env_id, **options) as url, GenericEnvClient(base_url=url).sync() as client:
        for index in (1, 2):  # the shop's expert does not find what task 0 wants
            result = client.reset(index=index, seed=5)
            task_id = result.observation["task_id"]
            assert task_id == here.unwrapped.task_ids[index]
            observation, info = here.reset(seed=5, options={"task_id": task_id})
            assert result.observation["text"].startswith(f"{info['task']}\n{observation}")
            total = 0.0
            while not result.done:
                assert result.observation["admissible_actions"] == list(info["admissible_actions"])
                action = info["expert_action"]
                result = client.step({"action": action})
                observation, reward, _, _, info = here.step(action)
                assert result.reward == reward
                assert result.observation["text"].startswith(observation)
                assert result.observation["action_valid"]
                total += result.reward
            assert result.observation["won"]
            assert total > 0
            assert client.state()["step_count"] > 0
    here.close()


def test_sessions_do_not_meet_and_context_keys_are_shared():
    with (
        served("hgpo_gym/SignpostMaze-v0", split="all", sections=1) as url,
        GenericEnvClient(base_url=url).sync() as one,
        GenericEnvClient(base_url=url).sync() as other,
    ):
        first, second = one.reset(task_id="red"), other.reset(task_id="blue")
        assert first.observation["context_keys"] != second.observation["context_keys"]
        second = other.reset(task_id="red")
        assert first.observation["context_keys"] == second.observation["context_keys"]
        one.step({"action": "walk on"})
        wrong = other.step({"action": "fly"})
        assert not wrong.observation["action_valid"]
        assert wrong.observation["admissible_actions"] == ["walk on"]


def test_without_a_seed_chance_is_otherwise_each_time():
    options = {"split": "all", "sections": 1, "slip": 0.5}

    def play(client, **arguments):
        client.reset(task_id="red", **arguments)
        return tuple(client.step({"action": "walk on"}).observation["text"] for _ in range(6))

    with (
        served("hgpo_gym/SignpostMaze-v0", **options) as url,
        GenericEnvClient(base_url=url).sync() as client,
    ):
        # Three of four episodes slip nowhere, so that sixty are alike by chance once in thirty million times.
        assert len({play(client) for _ in range(60)}) > 1
        assert len({play(client, seed=3) for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_id": "gold"}, "Unknown task_id 'gold'"),
        ({"split": "train"}, "has the split 'all'"),
        ({"tsk": 1}, "not tsk"),
        ({"index": 3}, "index=3: the split 'all' has 3 tasks, 0 to 2"),
        ({"index": -1}, "index=-1: the split 'all' has 3 tasks, 0 to 2"),
    ],
)
def test_an_impossible_request_is_an_error_at_the_client(arguments, message):
    with (
        served("hgpo_gym/SignpostMaze-v0", split="all", sections=1) as url,
        GenericEnvClient(base_url=url).sync() as client,
        pytest.raises(RuntimeError, match=message),
    ):
        client.reset(**arguments)


def test_a_task_of_the_split_has_an_index_from_0():
    server = GameServer("hgpo_gym/SignpostMaze-v0", split="all", sections=1)
    assert [server.get_task("all", index)["id"] for index in range(3)] == ["red", "blue", "green"]
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"index={index}: the split 'all' has 3 tasks, 0 to 2"):
            server.get_task("all", index)


def test_before_the_first_reset_and_after_the_end_nothing_happens():
    with (
        served("hgpo_gym/SignpostMaze-v0", split="all", sections=1) as url,
        GenericEnvClient(base_url=url).sync() as client,
    ):
        early = client.step({"action": "walk on"})
        assert (early.observation["text"], early.done, early.reward) == (OVER, True, 0.0)
        assert (early.observation["context_keys"], early.observation["task_id"]) == ([], "")
        assert client.state()["step_count"] == 0
        client.reset(task_id="red")
        last = [client.step({"action": action}) for action in ("walk on", "walk on", "open red door")][-1]
        late = client.step({"action": "walk on"})
        assert (last.done, last.reward, late.observation["text"], late.reward) == (True, 10.0, OVER, 0.0)
        assert late.observation["context_keys"] == last.observation["context_keys"]
        assert client.state()["step_count"] == 3


def test_the_folder_is_one_that_openenv_takes():
    openenv = Path(sys.executable).with_name("openenv")
    checked = subprocess.run(
        [openenv, "validate", FOLDER, "--level", "static"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
