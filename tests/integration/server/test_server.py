"""hgpo-gym serve: real processes, real HTTP. What clients may do, what they cannot, and what the log says of it."""

import asyncio
import copy
import itertools
import json
import select
import signal
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import gymnasium
import httpx
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from starlette.responses import Response

from hgpo_gym.cli.main import main
from hgpo_gym.client import RemoteError, RemoteTextEnv, SessionLostError
from hgpo_gym.client import env as client_env
from hgpo_gym.envs import ENVIRONMENTS, TextVectorEnv, check_text_env
from hgpo_gym.server import models, serve
from hgpo_gym.server.app import create_app
from hgpo_gym.server.guard import Guard
from hgpo_gym.server.limits import Limits
from hgpo_gym.server.offers import EnvironmentOffer, make_offers
from tests.checks.malformed import SECRET, Target, malformed_requests, send
from tests.support.serving import MANY, TEST, ServerProcess, wait_for_file

MAZE, REMOTE = "hgpo_gym/SignpostMaze-v0", "hgpo_gym/Remote-v0"
TOKENS = ("the-token-of-client-one", "the-token-of-client-two")
ONE, OTHER = ({"headers": {"Authorization": f"Bearer {token}"}} for token in TOKENS)
BODY_LIMIT = 1 << 16


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With tokens; every request in its log."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.txt"
    tokens.write_text("\n".join(TOKENS))
    offers = [["--env", MAZE, "split=[train,test]"], ["--env", TEST], ["--env", MANY]]
    limits = ["--sessions", "6", "--sessions-per-client", "4", "--body", str(BODY_LIMIT), "--access-log"]
    with ServerProcess(*itertools.chain(*offers), *limits, "--token-file", str(tokens)) as server:
        yield server


@pytest.fixture
def remote(server):
    """Makes remote environments and closes them."""
    made = []

    def make(env=MAZE, token=TOKENS[0], **options):
        made.append(RemoteTextEnv(server.url, env, token=token, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def session(server):
    """The path of a session of the first client."""
    path = server.new_session(**ONE)
    yield path
    httpx.delete(server.url + path, **ONE)


def walk(env, seed):
    """An episode of random admissible actions, all that it says."""
    rng = np.random.default_rng(seed)
    seen = [env.reset(seed=seed)]
    ended = False
    while not ended:
        actions = seen[-1][-1]["admissible_actions"]
        seen.append(env.step(actions[rng.integers(len(actions))]))
        ended = seen[-1][2] or seen[-1][3]
    return [*seen, env.reset()]


@pytest.mark.promise("An environment over HTTP says what a local one says.")
@pytest.mark.parametrize("options", [{}, {"split": "test"}])
def test_a_remote_environment_has_the_texts_of_a_local_one(options, remote):
    local, served = gymnasium.make(MAZE, **options), remote(**options)
    assert walk(served, seed=1) == walk(local, seed=1)
    assert served.split == local.unwrapped.split
    assert tuple(served.task_ids) == local.unwrapped.task_ids
    assert served.reset(options={"task_id": served.task_ids[-1]})[1]["task_id"] == local.unwrapped.task_ids[-1]


def test_a_remote_environment_keeps_the_contract(remote):
    check_text_env(remote(step_limit=0), steps=8)


def test_gymnasium_makes_remote_environments(server, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_SERVER_TOKEN", TOKENS[0])
    env = gymnasium.make(REMOTE, url=server.url, env=MAZE, render_mode="ansi")
    check_env(env.unwrapped)
    assert env.reset(seed=0)[0] == env.render()
    env.close()
    env.close()
    vector = gymnasium.make_vec(REMOTE, 4, group_size=2, url=server.url, env=MAZE, split="test")
    local = TextVectorEnv(MAZE, 2, 2, split="test")
    assert vector.reset(seed=3)[0] == local.reset(seed=3)[0]
    assert vector.step(["walk on"] * 4)[0] == local.step(["walk on"] * 4)[0]
    vector.close()


def test_members_of_a_remote_group_start_alike_and_draw_apart(server):
    def play():
        env = TextVectorEnv(REMOTE, 1, 2, url=server.url, env=TEST, token=TOKENS[0])
        starts, _ = env.reset(seed=3)
        rolls = env.step(["roll"] * 2)[0]
        env.close()
        return starts, rolls

    starts, rolls = play()
    assert starts[0] == starts[1]
    assert rolls[0] != rolls[1]
    assert play() == (starts, rolls)


def test_the_step_limit_truncates_and_then_a_reset_is_needed(remote):
    env = remote(step_limit=2)
    env.reset(seed=0)
    assert not env.step("walk on")[3]
    assert env.step("walk on")[3]
    with pytest.raises(ResetNeeded, match="Reset the session"):
        env.step("walk on")
    assert remote(TEST).reset(seed=0)[0].startswith("Begin")


@pytest.mark.parametrize(
    ("environment", "options", "message"),
    [
        ("hgpo_gym/ALFWorld-v0", {}, "no environment 'hgpo_gym/ALFWorld-v0' here. .* Choose one of"),
        ("os:system", {}, "no environment"),
        (MAZE, {"split": "../etc"}, "'../etc' is none of the values .* Choose one of 'train', 'test'"),
        (MAZE, {"sections": 99}, r"'sections' .* cannot be set by a client .*\(options.sections=99\) .* set: split"),
        (MAZE, {"data": "/etc/passwd"}, "'data' .* cannot be set by a client"),
        (TEST, {"gate": "/etc/passwd"}, "'gate' .* cannot be set by a client of this server. .* set: none"),
    ],
)
def test_only_what_the_operator_listed_can_be_made(environment, options, message, remote):
    with pytest.raises(ValueError, match=message):
        remote(environment, **options)


def test_environments_are_listed_with_their_choices(server):
    listed = {env["id"]: env for env in server.get("/environments", **ONE).json()["environments"]}
    assert list(listed) == [MAZE, TEST, MANY]
    assert listed[MAZE]["choices"] == {"split": ["train", "test"]}
    assert listed[TEST] == {"id": TEST, "description": "for tests", "choices": {}}


def test_ten_million_tasks_are_listed_by_pages(server, remote):
    page = server.get(f"/environments/{MANY}/tasks?offset=9999998", **ONE).json()
    assert page == {"total": 10**7, "offset": 9999998, "task_ids": ["task-9999998", "task-9999999"]}
    env = remote(MANY)
    assert len(env.task_ids) == 10**7
    assert env.task_ids[1234567:1234570] == ("task-1234567", "task-1234568", "task-1234569")
    assert env.task_ids[-1] == "task-9999999"
    assert "task-5" in env.task_ids
    assert "task-x" not in [env.task_ids[5]]
    assert env.reset(options={"task_id": "task-7654321"})[1]["task_id"] == "task-7654321"
    with pytest.raises(ValueError, match=r"no such task in this session's split. \(task_id='task-10000000'\)"):
        env.reset(options={"task_id": "task-10000000"})


def test_a_session_says_what_it_plays(server):
    for requested, limit in ((None, 24), (0, None), (3, 3)):
        content = {"environment": MAZE, "step_limit": requested, "options": {"split": "test"}}
        session = server.post("/sessions", content, **ONE).json()
        assert (session["split"], session["num_tasks"], session["step_limit"]) == ("test", 9, limit)
        assert (session["environment"], session["max_text_length"], session["turn"]) == (MAZE, 8192, 0)
        httpx.delete(f"{server.url}/sessions/{session['session']}", **ONE)


def test_responses_are_what_the_documentation_says(server, session):
    openapi = server.get("/openapi.json").json()
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            assert route["description"], f"{method} {path}"
            problems = [response for status, response in route["responses"].items() if status[0] in "45"]
            assert all(list(response["content"]) == ["application/problem+json"] for response in problems)
            assert ("401" in route["responses"], "security" in route) == ((path != "/health"),) * 2
    for name in ("NewSession", "Reset", "Step", "TurnResponse", "ProblemObject"):
        assert openapi["components"]["schemas"][name]["description"]
    assert "HTTPBearer" in openapi["components"]["securitySchemes"]
    models.SessionInfo.model_validate_json(server.get(session, **ONE).text)
    models.TurnResponse.model_validate_json(server.post(f"{session}/reset", **ONE).text)
    models.TurnResponse.model_validate_json(server.post(f"{session}/step", {"action": "go"}, **ONE).text)
    models.TaskPage.model_validate_json(server.get(f"{session}/tasks", **ONE).text)
    models.Environments.model_validate_json(server.get("/environments", **ONE).text)
    models.Health.model_validate_json(server.get("/health").text)
    refused = server.post(f"{session}/step", {"action": 3}, **ONE)
    assert refused.headers["content-type"] == "application/problem+json"
    problem = models.ProblemObject.model_validate_json(refused.text)
    assert (problem.status, problem.type, problem.name, problem.value) == (422, "malformed", "body.action", "3")


def test_a_turn_that_is_sent_again_is_not_played_again(server, session):
    assert server.post(f"{session}/reset", {"turn": 1, "seed": 5}, **ONE).json()["turn"] == 1
    first = server.post(f"{session}/step", {"turn": 2, "action": "go"}, **ONE)
    assert first.json()["observation"] == "1: go"
    assert server.post(f"{session}/step", {"turn": 2, "action": "go"}, **ONE).content == first.content
    for wrong in ({"turn": 2, "action": "stay"}, {"turn": 4, "action": "go"}, {"turn": 1, "action": "go"}):
        refused = server.post(f"{session}/step", wrong, **ONE)
        assert (refused.status_code, refused.json()["type"]) == (409, "wrong-turn")
        assert "The next turn of this session is 3" in refused.json()["detail"]
    assert server.post(f"{session}/step", {"turn": 3, "action": "go"}, **ONE).json()["observation"] == "2: go"
    assert server.get(session, **ONE).json()["turn"] == 3


def test_a_step_in_several_sessions_is_what_each_would_get_alone(server, remote):
    paths = [server.new_session(**ONE) for _ in range(3)]
    ids = [path.rpartition("/")[2] for path in paths]
    for path in paths[:2]:
        server.post(f"{path}/reset", {"turn": 1, "seed": 5}, **ONE)
    steps = [
        {"session": ids[0], "turn": 2, "action": "go"},
        {"session": "none", "action": "go"},
        {"session": ids[2], "turn": 1, "action": "go"},
        {"session": ids[1], "turn": 2, "action": f"raise {SECRET}"},
    ]
    first = server.post("/steps", {"steps": steps}, **ONE).json()["replies"]
    models.StepsResponse.model_validate({"replies": first})
    kinds = ["unknown-session", "reset-needed", "environment-failed"]
    assert [first[0]["observation"], *(reply["type"] for reply in first[1:])] == ["1: go", *kinds]
    # A step that is sent again, together or alone, is not played again; sessions of another client are unknown.
    assert server.post("/steps", {"steps": steps[:1]}, **ONE).json()["replies"] == first[:1]
    assert server.post(f"{paths[0]}/step", {"turn": 2, "action": "go"}, **ONE).json() == first[0]
    assert server.post("/steps", {"steps": steps[:1]}, **OTHER).json()["replies"][0]["type"] == "unknown-session"
    twice = server.post("/steps", {"steps": steps[:1] * 2}, **ONE)
    assert (twice.status_code, twice.json()["name"]) == (422, "body.steps")
    for path in paths:
        httpx.delete(server.url + path, **ONE)


def test_a_vector_of_remote_environments_steps_by_one_request(server):
    env = TextVectorEnv(REMOTE, 2, 2, url=server.url, env=TEST, token=TOKENS[0])
    env.reset(seed=0)
    before = server.log().count(" POST /steps ")
    assert env.step(["go", "roll", "win", "\ud800"])[0][::3] == ("1: go", "1: \ud800")
    assert env.step(["go", "stay", "has ended", "go"])[0][1] == "2: stay"
    assert server.log().count(" POST /steps ") == before + 2
    env.close()


class LosesResponses:
    """A proxy that drops `lose` responses: the server has acted, and the client does not know."""

    def __init__(self, port):
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.lose = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listening.accept()
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client):
        with client, socket.create_connection(self._server) as server:
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
            self._pump(server, client, responses=True)

    def _pump(self, source, sink, responses=False):
        with suppress(OSError):  # one side hung up
            while received := source.recv(1 << 16):
                if responses and self.lose:
                    self.lose -= 1
                    break
                sink.sendall(received)
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)


def test_the_client_repeats_what_got_no_response_and_it_is_played_once(server):
    proxy = LosesResponses(server.port)
    env = RemoteTextEnv(proxy.url, TEST, token=TOKENS[0])
    env.reset(seed=0)
    proxy.lose = 2
    assert env.step("go")[0] == "1: go"
    proxy.lose = 1
    first = env.reset(seed=1)
    assert env.reset(seed=1) == first
    proxy.lose = 5
    with pytest.raises(ConnectionError, match="No response from"):
        env.step("go")
    assert env.reset(seed=1) == first  # whether the step was played or not
    proxy.lose = 5
    with pytest.raises(ConnectionError):
        env.reset(seed=2)
    with pytest.raises(ResetNeeded):  # no step goes to the episode before it
        env.step("go")
    assert env.reset(seed=1) == first
    assert env.step("go")[0] == "1: go"
    with pytest.raises(TypeError, match=r"remote environment cannot be copied: .* Make another one, call reset"):
        copy.deepcopy(env)
    env.close()


@pytest.mark.promise("A client of the server cannot touch the session of another.")
def test_a_client_cannot_touch_the_session_of_another(server, session):
    server.post(f"{session}/reset", **ONE)
    for response in (
        server.get(session, **OTHER),
        server.get(f"{session}/tasks", **OTHER),
        server.post(f"{session}/reset", **OTHER),
        server.post(f"{session}/step", {"action": "go"}, **OTHER),
        httpx.delete(server.url + session, **OTHER),
    ):
        assert (response.status_code, response.json()["type"]) == (404, "unknown-session")
    assert server.post(f"{session}/step", {"action": "go"}, **ONE).json()["observation"] == "1: go"


def test_sessions_are_bounded_for_each_client_and_in_all(server):
    paths = [server.new_session(**ONE) for _ in range(4)]
    refused = server.post("/sessions", {"environment": TEST}, **ONE)
    assert (refused.status_code, refused.json()["type"]) == (429, "too-many-sessions")
    others = [server.new_session(**OTHER) for _ in range(2)]
    refused = server.post("/sessions", {"environment": TEST}, **OTHER)
    assert (refused.status_code, refused.json()["type"]) == (503, "server-full")
    assert server.open_sessions() == 6
    for path in paths:
        assert httpx.delete(server.url + path, **ONE).status_code == 204
        assert httpx.delete(server.url + path, **ONE).status_code == 404
    for path in others:
        httpx.delete(server.url + path, **OTHER)
    assert server.open_sessions() == 0


@pytest.mark.parametrize(
    ("action", "kind"),
    [(f"raise {SECRET}", "KeyError"), (f"exit {SECRET}", "SystemExit"), ("nan", "ValueError"), ("object", "TypeError")],
)
def test_an_error_in_an_environment_ends_that_session_alone(action, kind, server, session):
    before = len(server.log())
    server.post(f"{session}/reset", **ONE)
    broken = server.new_session(**ONE)
    server.post(f"{broken}/reset", **ONE)
    failed = server.post(f"{broken}/step", {"action": action}, **ONE)
    assert (failed.status_code, failed.json()["type"]) == (502, "environment-failed")
    assert failed.json()["detail"] == f"{TEST} failed with {kind}. This session is over."
    assert server.post(f"{broken}/step", {"action": "go"}, **ONE).status_code == 404
    assert server.post(f"{session}/step", {"action": "go"}, **ONE).json()["observation"] == "1: go"
    log = server.log()[before:]
    (line,) = [line for line in log.splitlines() if f" ended: {kind} in " in line]
    assert "ERROR Session " in line
    assert SECRET not in log


def test_the_environments_error_reaches_the_python_client(remote):
    env = remote(TEST)
    env.reset(seed=0)
    with pytest.raises(RemoteError, match="failed with KeyError"):
        env.step("raise it")
    with pytest.raises(SessionLostError):
        env.reset()  # what would have come by chance is lost
    assert env.reset(seed=0)[0].startswith("Begin")


def test_any_text_goes_both_ways(remote):
    env = remote(TEST)
    env.reset(seed=0)
    for number, action in enumerate(("\ud800", "häß 寿司 🦊\x00", "", '"}{')):
        assert env.step(action)[0] == f"{number + 1}: {action}"
    with pytest.raises(ValueError, match="more than 8192"):
        env.step("a" * 8193)
    with pytest.raises(TypeError, match="An action is a string"):
        env.step(3)


def test_malformed_requests_get_4xx_and_nothing_of_them_is_logged(server, session):
    target = Target("127.0.0.1", server.port, session.rpartition("/")[2], MAZE, TOKENS[0], BODY_LIMIT)
    for kind, request in itertools.islice(malformed_requests(0, target), 400):
        status = send(target, request)
        assert 400 <= status < 500, f"{kind}: {status} to {request[:2000]!r}"
    assert server.get("/health").json()["status"] == "ok"
    assert server.get(session, **ONE).json()["turn"] == 0
    log = server.log()
    assert log.count(" 422 ") > 20
    for secret in (SECRET, *TOKENS, target.session):
        assert secret not in log
    assert "Traceback" not in log


def test_the_documentation_and_health_need_no_token_the_rest_does(server):
    for path in ("/health", "/docs", "/openapi.json"):
        assert server.get(path).status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKENS[0]}"}):
        refused = server.get("/environments", headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
    with pytest.raises(RemoteError, match="The token is missing or not one of this server's"):
        RemoteTextEnv(server.url, MAZE, token="none of these")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """Without tokens; with `its_time_over` sessions that are idle and environments that are slow are given up."""
    folder = tmp_path_factory.mktemp("impatient")
    options = ["--env", TEST, f"gate={folder / 'gate'}", f"closed={folder / 'closed'}"]
    stop_clock = f"tests.support.serving.stop_clock({str(folder / 'late')!r})"
    limits = ["--idle-timeout", "0.5", "--time-limit", "0.5", "--threads", "4"]
    with ServerProcess(*options, *limits, before=stop_clock) as server:
        server.folder = folder
        yield server


@contextmanager
def its_time_over(impatient):
    """All sessions have been idle for too long meanwhile, and all environments at work are too slow."""
    late = impatient.folder / "late"
    late.touch()
    try:
        yield
    finally:
        late.unlink()


def test_a_client_that_vanishes_frees_its_session(impatient):
    path = impatient.new_session()
    impatient.post(f"{path}/reset")
    closed = impatient.folder / "closed"
    before = closed.read_text()
    body = b'{"action": "go"}'
    head = f"POST {path}/step HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
    assert impatient.open_sessions() == 1
    with its_time_over(impatient):
        impatient.until_open(0)
    assert impatient.get(path).json()["type"] == "unknown-session"
    impatient.wait_for_output("was idle: closed.")
    assert closed.read_text() == before + "closed\n"


def close_gate(impatient):
    """Let `wait` wait again, also after another test has opened the gate."""
    for name in ("gate", "gate.waited-for"):
        (impatient.folder / name).unlink(missing_ok=True)


def test_a_slow_environment_holds_up_nobody_and_keeps_its_place_until_it_returns(impatient):
    close_gate(impatient)
    slow, quick = impatient.new_session(), impatient.new_session()
    for path in (slow, quick):
        impatient.post(f"{path}/reset")
    responses = []
    waiting = threading.Thread(
        target=lambda: responses.append(impatient.post(f"{slow}/step", {"action": "wait"}, timeout=60))
    )
    waiting.start()
    wait_for_file(impatient.folder / "gate.waited-for")
    assert impatient.get("/health").json()["status"] == "ok"
    assert impatient.post(f"{quick}/step", {"action": "go"}).json()["observation"] == "1: go"
    httpx.delete(impatient.url + quick)
    with its_time_over(impatient):
        waiting.join()
    assert (responses[0].status_code, responses[0].json()["type"]) == (504, "environment-timed-out")
    assert impatient.post(f"{slow}/step", {"action": "go"}).status_code == 404
    assert impatient.open_sessions() == 1
    (impatient.folder / "gate").touch()
    impatient.until_open(0)
    fresh = impatient.new_session()
    assert impatient.post(f"{fresh}/reset").status_code == 200
    httpx.delete(impatient.url + fresh)


def test_a_slow_session_among_several_costs_the_others_nothing(impatient):
    paths = [impatient.new_session() for _ in range(2)]
    for path in paths:
        impatient.post(f"{path}/reset")
    close_gate(impatient)
    steps = [
        {"session": path.rpartition("/")[2], "action": act} for path, act in zip(paths, ("wait", "go"), strict=True)
    ]
    responses = []
    waiting = threading.Thread(target=lambda: responses.append(impatient.post("/steps", {"steps": steps}, timeout=60)))
    waiting.start()
    wait_for_file(impatient.folder / "gate.waited-for")
    with its_time_over(impatient):
        waiting.join()
    slow, quick = responses[0].json()["replies"]
    assert (slow["type"], quick["observation"]) == ("environment-timed-out", "1: go")
    (impatient.folder / "gate").touch()
    httpx.delete(impatient.url + paths[1])
    impatient.until_open(0)


def test_an_environment_that_can_no_longer_be_made_takes_no_place(impatient):
    broken = impatient.folder / "gate.broken"
    broken.touch()
    refused = impatient.post("/sessions", {"environment": TEST})
    assert (refused.status_code, refused.json()["type"]) == (503, "environment-unavailable")
    impatient.wait_for_output("cannot be made: Broken for the test.")
    assert "Broken for" not in refused.text
    broken.unlink()
    path = impatient.new_session()
    httpx.delete(impatient.url + path)
    impatient.until_open(0)


def test_without_tokens_only_names_of_this_machine_are_answered(impatient):
    refused = impatient.get("/health", headers={"Host": "evil.example.com"})
    assert (refused.status_code, refused.json()["type"]) == (421, "wrong-host")
    assert impatient.get("/health", headers={"Host": f"localhost:{impatient.port}"}).status_code == 200


@pytest.mark.parametrize(("signal_number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
def test_signals_close_the_sessions(signal_number, status, tmp_path):
    with ServerProcess("--env", TEST, f"closed={tmp_path / 'closed'}") as server:
        made = len((tmp_path / "closed").read_text().splitlines())  # and closed again, to see that it can be made
        for _ in range(3):
            server.new_session()
        ended, output = server.stop(signal_number)
        assert ended == status
        assert len((tmp_path / "closed").read_text().splitlines()) == made + 3
        assert "Closing 3 sessions." in output
        assert "Traceback" not in output


def test_what_is_being_played_is_answered_before_the_server_ends(tmp_path):
    gate = tmp_path / "gate"
    with ServerProcess("--env", TEST, f"gate={gate}") as server:
        path = server.new_session()
        server.post(f"{path}/reset")
        responses = []
        playing = threading.Thread(target=lambda: responses.append(server.post(f"{path}/step", {"action": "wait"})))
        playing.start()
        wait_for_file(gate.with_name("gate.waited-for"))
        server.process.send_signal(signal.SIGTERM)
        gate.touch()
        playing.join()
        assert responses[0].json()["observation"] == "1: wait"


def ask_guard(monkeypatch, app, *requests, client=("1.2.3.4", 5), path="/", **limits):
    """The responses of a guard to requests that are made at once, each a list of the messages that come in."""

    async def ask(guard, messages):
        scope = {"type": "http", "method": "POST", "path": path, "client": client, "query_string": b""}
        scope["headers"] = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        incoming, sent = iter(messages), []

        async def receive():
            message = next(incoming, None)
            return message or await asyncio.Future()

        async def send(message):
            sent.append(message)

        await guard(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    async def ask_all():
        guard = Guard(app, tokens=(), access_log=False, **{"body_limit": 10, "requests_per_client": 2} | limits)
        return await asyncio.gather(*(ask(guard, messages) for messages in requests))

    monkeypatch.setattr("hgpo_gym.server.guard.BODY_TIMEOUT", 0.1)
    return asyncio.run(ask_all())


async def echo(scope, receive, send):
    await Response((await receive())["body"])(scope, receive, send)


def part(body, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch):
    whole, slow = ask_guard(monkeypatch, echo, [part(b"12", True), part(b"34")], [part(b"12", True)])
    assert whole == (200, b"1234")
    assert (slow[0], json.loads(slow[1])["type"]) == (408, "too-slow")


def test_a_connection_cut_in_a_body_plays_nothing(server, session):
    """A reset whose body does not arrive was once played as an empty one."""
    server.post(f"{session}/reset", {"turn": 1, "seed": 5}, **ONE)
    head = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS[0]}\r\nContent-Type: application/json\r\n"
    before = server.log().count(" 400 ")
    for path, body in ((f"{session}/reset", b""), (f"{session}/step", b'{"action": "go"}')):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"POST {path} {head}Content-Length: 100\r\n\r\n".encode() + body)
    server.wait_for_output(" 400 ", before + 2)
    assert server.get(session, **ONE).json()["turn"] == 1


def test_one_client_has_a_bounded_number_of_requests(monkeypatch):
    slow = [part(b"1", True)]
    statuses = [status for status, _ in ask_guard(monkeypatch, echo, slow, slow, [part(b"1")])]
    assert statuses == [408, 408, 429]


def test_without_env_everything_is_offered_that_can_be_made(monkeypatch, caplog):
    ids = (MAZE, "hgpo_gym/ALFWorld-v0")
    monkeypatch.setattr("hgpo_gym.server.offers.ENVIRONMENTS", {id: ENVIRONMENTS[id] for id in ids})
    monkeypatch.setenv("ALFWORLD_DATA", "/no/such/place")
    assert make_offers([]) == {MAZE: EnvironmentOffer(MAZE)}
    assert "hgpo_gym/ALFWorld-v0 is not offered: ALFWorld games not found in /no/such/place" in caplog.text


def test_an_environment_that_is_offered_twice_is_refused_and_the_remedy_is_one():
    with pytest.raises(
        ValueError, match=rf"--env {MAZE} is given twice.* option=\[a,b\] .* like split=\[train,test\]\."
    ):
        make_offers([[MAZE, "split=train"], [MAZE, "split=test"]])
    [offer] = make_offers([[MAZE, "split=[train,test]"]]).values()
    assert [offer.make({"split": split}).unwrapped.split for split in ("train", "test")] == ["train", "test"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines, so clients need a token"),
        (["--env", "hgpo_gym/SignpostMaz-v0"], "Did you mean 'hgpo_gym/SignpostMaze-v0'?"),
        (["--env", MAZE, "split=[train,tset]"], "Unknown split 'tset'. Did you mean 'test'?"),
        (["--env", MAZE, "colors=3"], "Unknown option of hgpo_gym/SignpostMaze-v0 'colors'"),
        (["--env", MAZE, "split"], "cannot read 'split'. Write option=value"),
        (["--env", MAZE, "split=[train"], "cannot read 'split=[train'"),
        (["--env", "hgpo_gym/ALFWorld-v0", "data=/no/such/place"], "ALFWorld games not found in /no/such/place"),
        (["--sessions", "0"], "--sessions 0: must be above 0"),
        (["--token-file", "/no/such/file"], "/no/such/file"),
        (["--port", "70000"], "Cannot serve on 127.0.0.1, port 70000"),
    ],
)
def test_mistakes_of_the_operator_exit_2(arguments, message, capsys, monkeypatch):
    monkeypatch.delenv("HGPO_GYM_SERVER_TOKEN", raising=False)
    with pytest.raises(SystemExit) as exit:
        main(["serve", *(["--port", "0"] if "--port" not in arguments else []), *arguments])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["short", "", "a token with spaces in it", "ein-töken-mit-umlauten"])
def test_tokens_that_are_none_are_refused_without_being_shown(text, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("HGPO_GYM_SERVER_TOKEN", raising=False)
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(SystemExit) as exit:
        main(["serve", "--host", "0.0.0.0", "--port", "0", "--token-file", str(tmp_path / "tokens")])
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert "has no token" in error or "must have 16 or more ASCII characters" in error
    assert not text or text not in error


def test_a_server_that_is_none_is_named():
    with pytest.raises(ValueError, match="write http://host:port"):
        RemoteTextEnv("localhost:8000", MAZE)
    with pytest.raises(ValueError, match="write http://host:port"):
        RemoteTextEnv("http://[::1", MAZE)
    with socket.socket() as not_listening:
        not_listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{not_listening.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"No response from {url} .* Is 'hgpo-gym serve' there"):
            RemoteTextEnv(url, MAZE)


SESSION: dict[str, Any] = {"session": "a", "split": "train", "num_tasks": 2, "max_text_length": 100}
TURN: dict[str, Any] = {"turn": 1, "observation": "Begin.", "reward": 0.0, "terminated": False, "truncated": False}
TURN["info"] = {"task_id": "t", "task_type": "all", "task": "Go.", "admissible_actions": [], "won": False}
NOT_TEXTS: list[Any] = [{}, 3, [None]]
HOSTILE: dict[str, list[Any]] = {
    "POST": [
        *(b"", b"[]", b"null", b"{}", b"[" * 10**5, b"9" * 5000, b"\xff", b'{"session": "a"}', b'"\\ud800"'),
        *({**SESSION, "session": name} for name in ("../health", "a/b", "", "a?b", 7, None)),
        *({**SESSION, "num_tasks": number} for number in (-1, 10**30, "2", 1.5)),
        {**SESSION, "max_text_length": -1},
    ],
    "reset": [
        *(b"", b'{"turn": 1}', b"[]", {**TURN, "turn": 7}, {**TURN, "observation": 3}, {**TURN, "info": []}),
        *({**TURN, "reward": reward} for reward in (None, float("nan"), "1", 10**400)),
        *({**TURN, "info": {**TURN["info"], key: value}} for key in TURN["info"] for value in NOT_TEXTS),
        {**TURN, "info": {**TURN["info"], "action_descriptions": 3}},
    ],
}


@contextmanager
def answering(replies):
    """Serve, with these replies one after the other: JSON or bytes, with a status and a content type."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply, status, media_type = replies.pop(0)
            content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_DELETE = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.mark.promise("Whatever another server answers, the client raises ConnectionError.")
def test_replies_of_another_server_are_connection_errors():
    problem, good = "application/problem+json", (SESSION, 201, "application/json")
    replies = []
    with answering(replies) as url:
        for reply in HOSTILE["POST"]:
            replies[:] = [(reply, 201, "application/json")]
            with pytest.raises(ConnectionError, match=f"{url} answers .* check url="):
                RemoteTextEnv(url, TEST)
        for reply in (b"", b"[]", {"type": 3}, {"type": "malformed", "detail": "x"}, b"[" * 10**5):
            replies[:] = [(reply, 422, problem)]
            with pytest.raises(ConnectionError, match="check url="):
                RemoteTextEnv(url, TEST)
        for reply in HOSTILE["reset"]:
            replies[:] = [good, (reply, 200, "application/json"), (b"", 204, "")]
            env = RemoteTextEnv(url, TEST)
            with pytest.raises(ConnectionError, match="check url="):
                env.reset(seed=0)
            with pytest.raises(ResetNeeded):
                env.step("go")
            env.close()
        replies[:] = [good, ({"task_ids": ["one"]}, 200, "application/json"), (b"", 204, "")]
        env = RemoteTextEnv(url, TEST)
        with pytest.raises(ConnectionError, match="with 1 tasks instead of 2"):
            env.task_ids[1]
        env.close()


def test_client_and_server_read_the_token_from_the_same_variable():
    assert client_env.TOKEN_VARIABLE == serve.TOKEN_VARIABLE


def test_idle_and_slow_connections_are_bounded_in_number_and_time():
    start = "import hgpo_gym.server.connections as c; c.HEAD_TIMEOUT = 2"
    with ServerProcess("--env", TEST, "--connections", "20", before=start) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        idle = [stack.enter_context(socket.create_connection(address)) for _ in range(60)]
        slow = idle[0]
        slow.sendall(b"GET /health HT")
        for connection in idle:  # those above the number at once, the others when their time is up
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        assert server.get("/health").status_code == 200
        assert len(server.stop()[1]) < 2000


@pytest.mark.promise("Clients that never read their responses do not close the server to others.")
def test_clients_that_never_read_are_disconnected_and_have_half_of_the_connections():
    before = "import hgpo_gym.server.connections as c; c.READ_TIMEOUT = 0.1"
    requests = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300  # more than the kernel keeps
    with ServerProcess("--env", TEST, "--connections", "6", before=before) as server, ExitStack() as stack:
        poll = select.poll()
        for _ in range(20):
            greedy = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            with suppress(ConnectionError):  # more than half of the connections are refused
                greedy.sendall(requests)
            poll.register(greedy, 0)
        elsewhere = stack.enter_context(httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")))
        assert elsewhere.get(f"{server.url}/health").status_code == 200
        while len(poll.poll()) < 20:
            pass
        assert server.get("/health").status_code == 200


@pytest.mark.promise("A connection that is cut after POST /sessions leaves no session.")
def test_a_client_that_leaves_before_its_session_is_made_leaves_none(monkeypatch):
    app = create_app({TEST: EnvironmentOffer(TEST)}, Limits())
    request = part(json.dumps({"environment": TEST}).encode())
    left = [[request, {"type": "http.disconnect"}]] * 3
    ask_guard(monkeypatch, app, *left, path="/sessions", body_limit=100, requests_per_client=4)
    assert len(app.state.sessions) == 0
    ((status, _),) = ask_guard(monkeypatch, app, [request], path="/sessions", body_limit=100)
    assert (status, len(app.state.sessions)) == (201, 1)


def test_a_request_whose_client_has_left_counts_for_nobody(monkeypatch):
    assert ask_guard(monkeypatch, echo, [part(b"1")], client=None)[0][0] == 400


def test_responses_of_an_episode_without_a_step_limit_are_bounded():
    with ServerProcess("--env", TEST, "--episode", "1000") as server:
        path = server.post("/sessions", {"environment": TEST, "step_limit": 0}).json()["session"]
        server.post(f"/sessions/{path}/reset")
        output_text = [server.post(f"/sessions/{path}/step", {"action": "x" * 300}) for _ in range(5)]
        assert [response.status_code for response in output_text] == [200, 200, 200, 200, 409]
        assert output_text[-1].json()["type"] == "episode-too-long"
        assert server.post(f"/sessions/{path}/reset").status_code == 200
        assert server.post(f"/sessions/{path}/step", {"action": "x"}).status_code == 200
