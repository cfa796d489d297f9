"""A model behind an endpoint, asked over real HTTP: the server is slow, full, broken or wrong on demand."""

import json
import re
import socket
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.extras import install_command
from hgpo_gym.memory import PromptTemplate
from hgpo_gym.policies import Request, Response, Sampling
from hgpo_gym.policies.base import MeteredPolicy, NoResponseError
from hgpo_gym.policies.endpoint import EndpointPolicy
from hgpo_gym.policies.endpoint_settings import EndpointSettings
from hgpo_gym.policies.response_cache import ResponseCache
from hgpo_gym.rollouts.evaluation import evaluate
from hgpo_gym.trainers.environments import make_evaluation_env
from tests.support.chat_server import Reply, choose, completion, error, serving
from tests.support.commands import run

KEY = "sk-very-secret-0123456789"
SECONDS = 20.0
"""To wait at most for what must come."""
MAZE = [
    "env.sections=2", "env.max_episode_steps=8", "evaluation.decoding_seeds=4", "prompt=instruct",
    "engine.constrain=none",
]  # fmt: skip


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def admissible(prompt):
    return re.search(r"Admissible actions: \[(.*)\]", prompt).group(1).split(", ")


def play(server, body):
    """A model that knows the rules."""
    prompt = body["messages"][0]["content"]
    return Reply(200, completion(choose(prompt, body["seed"], admissible(prompt))))


def echo(server, body):
    return Reply(200, completion(body["messages"][0]["content"]))


def settings(url, **changes):
    """Return the settings of eval.yaml, with retries without delay if the server allows it."""
    return EndpointSettings(**{**load_config("eval", [])["openai"], "base_url": url, "model": "tiny", **changes})


def ask(server, prompts, tmp_path, **changes):
    """The texts and the usage."""
    with EndpointPolicy(settings(server.url, **changes), ResponseCache(tmp_path / "kept.jsonl")) as policy:
        responses = policy.generate(requests(prompts), Sampling(max_new_tokens=7))
        policy.forget()
        return [response.text for response in responses], policy.usage()


def requests(prompts):
    return [Request(prompt, seed=(number,)) for number, prompt in enumerate(prompts)]


def run_eval(capsys, server, *overrides):
    return run(capsys, "eval", "policy=openai", f"openai.base_url={server.url}", "openai.model=tiny", *MAZE, *overrides)


class Chooser:
    """The server's model in this process, asked with the same seeds."""

    def generate(self, requests, sampling):
        return [Response(choose(r.prompt, seed_of(r), admissible(r.prompt))) for r in requests]


def seed_of(request):
    return int(np.random.SeedSequence(request.seed).generate_state(1)[0] >> 1)


def test_an_evaluation_by_endpoint_is_that_of_the_same_model_here_and_its_tokens_are_counted(capsys, tmp_path):
    out = tmp_path / "evaluation.json"
    with serving(play) as server:
        status, shown, err = run_eval(
            capsys, server, f"out={out}", "openai.price_input=2", "openai.price_output=10", "evaluation.top_p=0.9"
        )
    assert status == 0, err
    run = load_run(MAZE)
    env = make_evaluation_env(run.environments, run.evaluation)
    expected = evaluate(env, Chooser(), Sampling(), range(4)).summary()
    env.close()
    result = json.loads(out.read_text())
    usage = result.pop("usage")
    assert result == {"env": "hgpo_gym/SignpostMaze-v0", "policy": "openai", **expected}
    assert 0 < result["valid_action_rate"] == 1
    steps = round(expected["episode_length"] * expected["episodes"])
    assert usage["requests"] == len(server.seen) == steps
    assert (usage["input_tokens"], usage["output_tokens"]) == (10 * steps, 3 * steps)
    assert usage["cost"] == pytest.approx((2 * 10 + 10 * 3) * steps / 1e6)
    assert (usage["retries"], usage["failures"], usage["recalled"]) == (0, 0, 0)
    assert f"tiny: {steps:,} responses" in shown
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == ("tiny", 0.4, 0.9, 32)
    assert len({body["seed"] for body in server.bodies()}) == steps
    assert not list((tmp_path / "cache" / "responses").iterdir())


def test_responses_are_kept_until_all_is_written(capsys, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    with serving(play) as server:
        address = f"openai.base_url={server.url}"
        with monkeypatch.context() as patch:
            patch.setattr("hgpo_gym.cli.evaluation.write_transcripts", full)
            with pytest.raises(OSError, match="no space left"):
                run_eval(capsys, server, f"transcripts={tmp_path / 'transcripts'}")
        requested = len(server.seen)
        status, _, err = run_eval(capsys, server, f"transcripts={tmp_path / 'transcripts'}", address)
        assert status == 0, err
        assert len(server.seen) == requested > 0
    assert (tmp_path / "transcripts" / "transcripts.jsonl").exists()
    assert not list((tmp_path / "cache" / "responses").iterdir())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            [{"type": "text", "text": "go "}, {"type": "refusal", "refusal": "no"}, {"type": "text", "text": "on"}],
            "go on",
        ),
        ("half \ud83d and whole \ud83d\ude00", "half \ufffd and whole \U0001f600"),
        (None, ""),
    ],
)
def test_what_endpoints_give_as_content_becomes_a_text_that_files_take(content, text, tmp_path):
    with serving(lambda *_: Reply(200, completion(content))) as server:
        assert ask(server, ["a"], tmp_path)[0] == [text]


def test_responses_come_in_order_and_no_more_requests_are_under_way_than_allowed(tmp_path):
    together = threading.Barrier(4)

    def slow(server, body):
        together.wait(SECONDS)  # nobody is answered before four have asked
        return echo(server, body)

    prompts = [f"prompt {number}" for number in range(12)]
    with serving(slow) as server:
        texts, usage = ask(server, prompts, tmp_path, concurrency=4)
    assert texts == prompts
    assert server.busiest == 4
    assert usage["requests"] == 12


def test_a_response_arrives_while_another_is_still_being_written(tmp_path):
    def hold_back_slow(server, body):
        if body["messages"][0]["content"] == "slow":
            server.released.wait(SECONDS)
        return echo(server, body)

    slow, quick, later = requests(["slow", "quick", "later"])
    with serving(hold_back_slow) as server:
        policy = EndpointPolicy(settings(server.url), ResponseCache(tmp_path / "kept.jsonl"))
        with policy:
            stream = policy.stream(Sampling())
            stream.ask({0: slow, 1: quick})
            assert stream.work() == {1: Response("quick")}
            stream.ask({2: later})
            assert stream.work() == {2: Response("later")}
            assert stream.pending == 1
            server.released.set()
            assert stream.work() == {0: Response("slow")}
            assert stream.pending == 0


def test_what_is_sent_can_be_suited_to_the_endpoint(tmp_path):
    with serving(lambda server, body: Reply(200, completion(body["prompt"] + "!"))) as server:
        changes = {"chat": False, "token_limit": "max_completion_tokens", "send_seed": False, "extra": {"top_k": 20}}
        texts, _ = ask(server, ["go on"], tmp_path, **changes)
    assert texts == ["go on!"]
    ((path, _, body),) = server.seen
    assert path == "/v1/completions"
    assert (body["prompt"], body["max_completion_tokens"], body["top_k"]) == ("go on", 7, 20)
    assert not body.keys() & {"seed", "max_tokens", "messages"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_request_is_tried_again_when_the_endpoint_says(status, tmp_path):
    """The client's first delay is half a second at most: a second passes only if Retry-After is heeded."""
    times = []

    def recover(server, body):
        times.append(time.monotonic())
        if len(times) == 1:
            return Reply(status, error("busy"), {"Retry-After": "1"})
        return echo(server, body)

    with serving(recover) as server:
        texts, usage = ask(server, ["hello"], tmp_path)
    assert texts == ["hello"]
    assert (usage["requests"], usage["retries"], usage["failures"]) == (1, 1, 0)
    assert times[1] - times[0] >= 1.0


AT_ONCE = {"retry-after-ms": "1"}


@pytest.mark.parametrize(
    ("reply", "tries", "message"),
    [
        (Reply(500, error("it broke"), AT_ONCE), 3, r"status 500: it broke\. The endpoint is in trouble: try later"),
        (Reply(429, error("too many"), AT_ONCE), 3, r"status 429: too many\. Lower openai\.concurrency"),
        (
            Reply(401, error(f"Wrong key {KEY}")),
            1,
            r"status 401: Wrong key \*\*\*\. Check the key in .* OPENAI_API_KEY",
        ),
        (
            Reply(404, error("no model tiny")),
            1,
            r"status 404: no model tiny\. Check openai\.base_url, .* openai\.model",
        ),
        (Reply(400, error("too long")), 1, r"status 400: too long\. It refuses the request itself"),
        (Reply(400, "<html>Bad gateway"), 1, r"status 400: <html>Bad gateway"),
        (Reply(200, "{'choices': "), 1, r"not a response: .*choices.*\. Check openai\.base_url"),
        (Reply(200, {"choices": []}), 1, r"not a response: "),
        (Reply(200, [1, 2]), 1, r"not a response: "),
    ],
)
def test_a_request_that_fails_for_good_names_endpoint_status_and_remedy(reply, tries, message, tmp_path):
    with serving(lambda server, body: reply) as server:
        policy = EndpointPolicy(settings(server.url, retries=2), ResponseCache(tmp_path / "kept.jsonl"))
        with pytest.raises(NoResponseError, match=message) as raised, policy:
            policy.generate(requests(["hello"]), Sampling())
    assert f"{server.url} (model tiny): " in str(raised.value)
    assert KEY not in str(raised.value)
    assert len(server.seen) == tries
    assert (policy.usage()["failures"], policy.usage()["retries"]) == (1, tries - 1)


def test_an_endpoint_that_does_not_response_in_time_is_tried_again_then_named(tmp_path):
    def hang(server, body):
        server.released.wait(SECONDS)
        return echo(server, body)

    with serving(hang) as server:
        policy = EndpointPolicy(settings(server.url, retries=1, timeout=0.2), ResponseCache(tmp_path / "kept.jsonl"))
        with pytest.raises(NoResponseError, match=r"no response: 0\.2 s\. Raise openai\.timeout"), policy:
            policy.generate(requests(["hello"]), Sampling())
        server.released.set()
    assert policy.usage()["retries"] == 1


def test_a_missing_endpoint_is_named(tmp_path):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        policy = EndpointPolicy(settings(url, retries=0, on_failure="empty"), ResponseCache(tmp_path / "kept.jsonl"))
        with pytest.raises(NoResponseError, match=r"no connection: .*See whether the server is up"), policy:
            policy.generate(requests(["hello"]), Sampling())


def test_failures_can_count_as_empty_responses_but_a_wrong_key_stops_all_the_same(tmp_path):
    def pick(server, body):
        prompt = body["messages"][0]["content"]
        return Reply(400, error("too long")) if prompt == "long" else echo(server, body)

    with serving(pick) as server:
        texts, usage = ask(server, ["short", "long", "brief"], tmp_path, on_failure="empty")
    assert texts == ["short", "", "brief"]
    assert (usage["requests"], usage["failures"]) == (2, 1)
    refusing = serving(lambda server, body: Reply(401, error("who are you")))
    with refusing as server, pytest.raises(NoResponseError, match="Check the key"):
        ask(server, ["short"], tmp_path, on_failure="empty")


def test_without_a_key_the_endpoint_is_asked_without_and_a_refusal_says_where_it_belongs(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    refusing = serving(lambda server, body: Reply(401, error("no key")))
    with refusing as server, pytest.raises(NoResponseError, match="Put a key in the environment variable MY_KEY"):
        ask(server, ["hello"], tmp_path, key_variable="MY_KEY")


def test_tokens_that_the_endpoint_does_not_tell_are_not_guessed(tmp_path):
    def untold(server, body):
        return Reply(200, {**completion("hi"), "usage": None})

    with serving(untold) as server:
        _, usage = ask(server, ["a", "b"], tmp_path, price_input=1.0, price_output=1.0)
    assert (usage["requests"], usage["unmetered"], usage["cost"]) == (2, 2, None)


def test_an_evaluation_that_broke_off_goes_on_without_asking_twice(capsys, tmp_path):
    """The endpoint fails after 30 answers, for good; the same command is given again when it is well."""
    with serving(play) as server:
        status, _, _ = run_eval(capsys, server, f"out={tmp_path}/whole.json")
    assert status == 0
    in_all = len(server.seen)
    assert in_all > 60

    def fail_after_30(server, body):
        return play(server, body) if len(server.seen) <= 30 else Reply(400, error("out of credit"))

    with serving(fail_after_30) as server:
        address = f"openai.base_url={server.url}"
        status, shown, err = run_eval(capsys, server)
        assert status == 1
        answered = int(re.search(r"tiny: (\d+) responses", shown).group(1))
        assert "out of credit. It refuses the request itself: " in err
        assert f"{answered} responses are kept: the same command continues from there" in err
        assert 0 < answered <= 30
        server.seen.clear()
        server.behave = play
        status, shown, err = run_eval(capsys, server, f"out={tmp_path}/mended.json", address)
        assert status == 0, err
        assert f"Continuing with {answered} responses in " in shown
        assert len(server.seen) == in_all - answered
        assert Counter(body["seed"] for body in server.bodies()).most_common(1)[0][1] == 1
    fixed, expected = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("mended", "whole"))
    assert fixed.pop("usage") == {**expected.pop("usage"), "recalled": answered}
    assert fixed == expected


def test_the_key_is_written_nowhere(capsys, tmp_path):
    with serving(lambda server, body: Reply(401, error(f"Incorrect API key provided: {KEY}"))) as server:
        status, shown, err = run_eval(capsys, server)
    assert status == 1
    assert KEY not in shown + err
    with serving(play) as server:
        status, shown, err = run_eval(capsys, server, f"out={tmp_path}/evaluation.json")
    assert status == 0
    assert KEY not in shown + err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    _, shown, _ = run(capsys, "eval", "policy=openai", "openai.model=tiny", "--show-config")
    assert "key_variable: OPENAI_API_KEY" in shown
    assert KEY not in shown


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "openai.model=None: name the model"),
        (["openai.model=tiny"], "Set engine.constrain=none, and prompt=instruct"),
        (["openai.model=tiny", "openai.base_url=localhost"], "openai.base_url=localhost: write it like http://"),
        (["openai.model=tiny", "openai.base_url=http://me:secret@host/v1"], "openai.base_url holds a password"),
        (["openai.model=tiny", "openai.concurrency=0"], "openai.concurrency=0: must be above 0"),
        (["openai.model=tiny", "openai.timeout=0"], "openai.timeout=0: must be above 0"),
        (["openai.model=tiny", "openai.on_failure=skip"], "Unknown openai.on_failure 'skip'"),
    ],
)
def test_settings_that_cannot_be_are_named(overrides, message, capsys):
    status, _, err = run(capsys, "eval", "policy=openai", *overrides)
    assert status == 2
    assert message in err
    assert "secret" not in err


def test_a_prompt_that_does_not_say_how_to_response_is_pointed_out(capsys):
    with serving(lambda server, body: Reply(200, completion("walk on"))) as server:
        _, hinted, _ = run_eval(capsys, server, "prompt=bare")
        _, output, _ = run_eval(capsys, server)
    assert "prompt=instruct suits" in hinted
    assert "prompt=instruct suits" not in output


def test_a_missing_package_is_named_with_its_extra(capsys, monkeypatch):
    for module in ("endpoint", "endpoint_client"):
        monkeypatch.delitem(sys.modules, f"hgpo_gym.policies.{module}")
    monkeypatch.setitem(sys.modules, "openai", None)
    status, _, err = run(capsys, "eval", "policy=openai", "openai.model=tiny", *MAZE)
    assert status == 2
    assert install_command("openai") in err


def test_a_last_line_that_was_cut_short_is_asked_again(tmp_path):
    def fail_c(server, body):
        return Reply(400, error("no")) if body["messages"][0]["content"] == "c" else echo(server, body)

    path = tmp_path / "kept.jsonl"
    with serving(fail_c) as server:
        policy = EndpointPolicy(settings(server.url), ResponseCache(path))
        assert isinstance(policy, MeteredPolicy)
        with pytest.raises(NoResponseError, match="2 responses are kept"), policy:
            policy.generate(requests(["a", "b", "c"]), Sampling())
        path.write_bytes(path.read_bytes()[:-5])
        saved = ResponseCache(path)
        assert len(saved) == 1
        server.seen.clear()
        with EndpointPolicy(settings(server.url), saved) as policy:
            assert [response.text for response in policy.generate(requests(["a", "b"]), Sampling())] == ["a", "b"]
        assert len(server.seen) == 1
    assert path.exists()
    policy.forget()
    assert not path.exists()


def test_functions_are_offered_and_calls_are_read(tmp_path):
    """The endpoint gives calls apart from the text, their arguments as JSON."""
    template = PromptTemplate.named("tools")

    def call(server, body):
        reply = completion(None)
        function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"action": "walk on"}'}
        calls = [{"id": "call-1", "type": "function", "function": function}]
        reply["choices"][0]["message"]["tool_calls"] = calls
        return Reply(200, reply)

    with (
        serving(call) as server,
        EndpointPolicy(settings(server.url), ResponseCache(tmp_path / "kept.jsonl")) as policy,
    ):
        [response] = policy.generate([Request("A hall.", tools=template.tools)], Sampling())
        assert template.read(response.text) == ("walk on", True)
        assert [body["tools"] for body in server.bodies()] == [template.calls.schemas]
