"""The calls of a policy to vLLM's engine, without vLLM: when weights are gathered and copied, when it sleeps; and
the client of a server that does not answer. tests/vllm has the engine itself."""

import socket
import tomllib
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import CopyingPolicy
from hgpo_gym.policies.engine_check import trainers_logprobs
from hgpo_gym.policies.vllm_policy import VllmPolicy
from hgpo_gym.policies.vllm_requests import Completion
from hgpo_gym.policies.vllm_server import VllmServer
from tests.support.small_models import make_policy


class Engine:
    """Records calls; every response is the end of text at once."""

    max_model_len = 10_000
    takes_adapter = False
    dtype = "float32"

    def __init__(self, level, off_by=0.0):
        self.calls, self.level, self.asleep, self.asked = [], level, set(), []
        self.off_by, self.scored, self.policy = off_by, 0, None

    def submit(self, name, prompt_ids, parameters, stopped=None):
        assert not self.asleep
        self.asked.append(Completion(name, parameters["stop_token_ids"][:1], [0.0]))

    def step(self):
        requested, self.asked = self.asked, []
        return requested

    def load(self, weights, tied_head):
        assert "weights" not in self.asleep
        self.calls.append(f"load {tied_head in dict(weights)}")
        return ["layers.7"]

    def logprobs(self, token_ids):
        assert not self.asleep
        self.scored += 1
        return (trainers_logprobs(self.policy, np.array(token_ids)) + self.off_by).tolist()

    def wake(self, part):
        if part in self.asleep:
            self.asleep.remove(part)
            self.calls.append(f"wake {part}")

    def sleep(self):
        if self.level and not self.asleep:
            self.asleep = {"weights", "kv_cache"}
            self.calls.append("sleep")
        return self.level > 1

    def forget(self):
        pass


def policy_with(engine, monkeypatch):
    small = make_policy()
    policy = VllmPolicy(small.model, small.tokenizer, server="http://localhost:1", constrain="none")
    engine.policy = small
    monkeypatch.setattr(policy, "_start", lambda: engine)
    return policy


def an_iteration(policy, calls):
    """A rollout, an evaluation and an update, as a learner goes about it."""

    @contextmanager
    def gathered():
        calls.append("gather")
        yield
        calls.append("give back")

    for _ in range(2):
        with policy.rollout_weights(gathered):
            policy.generate([Request("Hall.")], Sampling())
            calls.append("response")
    policy.updated()


COPIED = ["gather", "load True", "give back"]
WOKEN = ["wake weights", *COPIED, "wake kv_cache", "response", "sleep"]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, [*COPIED, "response", "response"]),
        (1, [*WOKEN, "wake weights", "wake kv_cache", "response", "sleep"]),
        (2, [*WOKEN, *WOKEN]),
    ],
)
def test_weights_are_whole_only_while_they_are_copied_and_the_engine_sleeps_while_they_change(
    level, expected, monkeypatch
):
    engine = Engine(level)
    policy = policy_with(engine, monkeypatch)
    assert isinstance(policy, CopyingPolicy)
    assert not isinstance(make_policy(), CopyingPolicy)
    policy.updated()
    assert engine.calls == (["sleep"] if level else [])
    for _ in range(2):
        engine.calls.clear()
        an_iteration(policy, engine.calls)
        assert engine.calls == expected


def test_an_engine_that_sleeps_wakes_for_who_asks_outside_of_a_run(monkeypatch):
    engine = Engine(1)
    policy = policy_with(engine, monkeypatch)
    policy.updated()
    assert [response.text for response in policy.generate([Request("Hall.")], Sampling())] == [""]


def test_inside_of_acting_responses_stay_by_the_weights_it_began_with(monkeypatch):
    """The model may be trained meanwhile."""
    engine = Engine(0)
    policy = policy_with(engine, monkeypatch)
    with policy.rollout_weights(nullcontext):
        policy.generate([Request("Hall.")], Sampling())
        policy.updated()
        policy.generate([Request("Hall.")], Sampling())
        assert engine.calls == ["load True"]
    policy.generate([Request("Hall.")], Sampling())
    assert engine.calls == ["load True"] * 2


def test_the_engine_is_checked_after_its_first_loads(monkeypatch):
    engine = Engine(0)
    policy = policy_with(engine, monkeypatch)
    for _ in range(6):
        policy.generate([Request("Hall.")], Sampling())
        policy.generate([Request("Hall.")], Sampling())
        policy.updated()
    assert (engine.calls, engine.scored) == (["load True"] * 6, 4)
    policy = policy_with(Engine(0, off_by=0.2), monkeypatch)
    with pytest.raises(ValueError, match=r"weights of this Qwen2ForCausalLM.* by 0\.2 nats .*not loaded: layers\.7\."):
        policy.generate([Request("Hall.")], Sampling())
    engine = Engine(0, off_by=0.2)
    engine.dtype = "bfloat16"
    policy_with(engine, monkeypatch).generate([Request("Hall.")], Sampling())


def test_vllm_is_not_put_on_another_gpu_than_the_model():
    """The first is what vLLM takes. A server chooses its settings."""
    settings = ["model=pretrained", "model.path=here", "engine=vllm", "model.device=cuda:1"]
    run = load_run(settings)
    with pytest.raises(ValueError, match=r"model\.device=cuda:1 with engine=vllm: .*CUDA_VISIBLE_DEVICES=1"):
        run.model.check(run, 1)
    for other in (["engine.server=http://a:1"], ["model.device=cuda:0"], ["engine=transformers"]):
        run = load_run([*settings, *other])
        run.model.check(run, 1)


def test_a_server_that_does_not_response_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(
            TimeoutError, match=rf"The vLLM server at {url} has not answered /server_info.* 0.1 seconds"
        ):
            VllmServer(url, None, 1, timeout=0.1, constrained=False)


TORCH_OF_VLLM = {"0.32.0": "2.13.0", "0.33.0": "2.14.0"}
"""What the metadata of vLLM's versions ask for, from the version that is tested."""


def test_the_extra_takes_the_versions_of_vllm_that_go_with_our_torch():
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    (vllm,) = map(Requirement, extras["vllm"])
    (torch,) = (found for found in map(Requirement, extras["train"]) if found.name == "torch")
    for version, requested in TORCH_OF_VLLM.items():
        assert (version in vllm.specifier) == (requested in torch.specifier), version
    assert "1.0" not in vllm.specifier, "versions that nobody has looked at"


def test_the_options_of_the_engine_are_the_settings():
    settings = load_config("config", ["engine=vllm"])["engine"]
    assert (settings["sleep_level"], settings["server_timeout"]) == (0, 600.0)
