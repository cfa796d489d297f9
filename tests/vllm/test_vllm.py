"""engine=vllm with the real vLLM on a CPU: the same weights, tokens and probabilities as the trainer's model."""

import copy
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import Request, Response, Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.lora import LoraSettings, add_adapters
from hgpo_gym.policies.vllm_policy import VllmPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.learners.async_rollout import NotWantedError
from hgpo_gym.trainers.run import Run
from hgpo_gym.trainers.update.conversations import continues
from tests.support import small_runs

ACTIONS = ("walk on", "walk off", "open red door", "open blue door", "go back", "go back again")
# The last is longer than a block of the KV cache on a CPU, 128 tokens, so that its prefix is kept.
PROMPTS = ["You are in a hall.", "Hall.", "You stand at a signpost. It says: take the red door.\n> walk on\n" * 40]
OPTIONS = {"enforce_eager": True, "kv_cache_gib": 0.05}


@pytest.fixture(scope="module")
def tiny():
    tokenizer = train_tokenizer([*PROMPTS, *ACTIONS] * 3, 400)
    return make_tiny_model(tokenizer, hidden_size=64, layers=2, heads=2, seed=0, device="cpu"), tokenizer


@pytest.fixture(scope="module")
def policy(tiny):
    """Asked for free text too, by requests without a trie."""
    return VllmPolicy(*tiny, constrain="admissible", **OPTIONS)


@pytest.fixture(scope="module")
def free(tiny):
    return VllmPolicy(*tiny, constrain="none", **OPTIONS)


def requests(count=12, responses=ACTIONS, first_seed=0):
    return [Request(PROMPTS[n % 3], responses, seed=(7, first_seed + n)) for n in range(count)]


def texts(responses):
    return [response.text for response in responses]


def gap(policy, responses, temperature=1.0):
    """The largest difference between a recorded log-probability and the trainer's."""
    records = [response.tokens for response in responses]
    scored = score(policy, records, temperature=temperature, max_batch_tokens=4096)
    recorded = np.concatenate([record.logprobs[record.choices] for record in records])
    assert len(recorded) >= len(records)
    return np.abs(recorded - np.concatenate(scored)).max()


@pytest.mark.promise("vLLM's log-probabilities are the trainer's.")
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_recorded_log_probabilities_are_the_trainers(free, tiny, temperature):
    requested = requests(responses=())
    responses = free.generate(requested, Sampling(temperature=temperature, max_new_tokens=8))
    assert gap(free, responses, temperature) < 1e-4
    for response, request in zip(responses, requested, strict=True):
        record = response.tokens
        np.testing.assert_array_equal(
            record.prompt_ids, LanguageModelPolicy(*tiny, constrain="none").encode_prompts([request.prompt])[0]
        )
        assert len(record.token_ids) == len(record.logprobs) <= 8
        assert tiny[1].decode(record.token_ids, skip_special_tokens=True) == response.text


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_constrained_responses_are_admissible_and_recorded_under_the_constraint(policy, tiny, temperature):
    responses = policy.generate(requests(60), Sampling(temperature=temperature))
    assert len(set(texts(responses))) > 1
    assert set(texts(responses)) <= set(ACTIONS)
    assert gap(policy, responses, temperature) < 1e-4
    by_text = {
        response.text: response.tokens
        for response in LanguageModelPolicy(*tiny, constrain="admissible").generate(requests(60), Sampling())
    }
    for response in responses:
        record, expected = response.tokens, by_text[response.text]
        np.testing.assert_array_equal(record.token_ids, expected.token_ids)
        assert len(record.allowed) == len(expected.allowed)
        for ids, expected_ids in zip(record.allowed, expected.allowed, strict=True):
            np.testing.assert_array_equal(ids, expected_ids)


def test_responses_stop_where_those_of_the_other_engine_stop(free, tiny, monkeypatch):
    """At texts and at tokens; what is recorded is what was written up to there."""
    (token,) = tiny[1]("l", add_special_tokens=False)["input_ids"]
    requested = [Request(f"{prompt} {n}") for prompt in PROMPTS for n in range(8)]
    likeliest = Sampling(temperature=0, max_new_tokens=24)
    written = "".join(texts(free.generate(requested, likeliest)))
    pairs = sorted({written[n : n + 2] for n in range(len(written))})
    common = sorted(pairs, key=written.count)[-3:]
    options = {"stop": common, "stop_token_ids": [token]}
    stopping = VllmPolicy(*tiny, **options, constrain="none", **OPTIONS)
    monkeypatch.setattr(stopping, "_start", lambda: free._engine)
    stopping.updated()
    responses = stopping.generate(requested, likeliest)
    expected = LanguageModelPolicy(*tiny, constrain="none", **options).generate(requested, likeliest)
    assert texts(responses) == texts(expected)
    assert sum(response.text.endswith(tuple(common)) for response in responses) > 4
    for response, other in zip(responses, expected, strict=True):
        np.testing.assert_array_equal(response.tokens.token_ids, other.tokens.token_ids)
        assert response.truncated == other.truncated
        assert len(response.tokens.logprobs) == len(response.tokens.token_ids)
    assert not free._engine._open  # nothing goes on being written


def test_responses_follow_the_models_distribution(policy):
    """Frequencies over 1,000 seeds against the exact probabilities."""
    responses = policy.generate([Request(PROMPTS[0], ACTIONS, seed=(n,)) for n in range(1000)], Sampling())
    probabilities = {response.text: np.exp(response.tokens.logprobs.sum()) for response in responses}
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    for text, probability in probabilities.items():
        assert abs(texts(responses).count(text) / 1000 - probability) < 4 * np.sqrt(
            probability * (1 - probability) / 1000
        )


def test_a_response_depends_on_its_seed_and_not_on_what_it_is_asked_with(policy):
    together = texts(policy.generate(requests(), Sampling()))
    assert texts(policy.generate(requests(), Sampling())) == together
    assert [policy.generate([request], Sampling())[0].text for request in requests()] == together
    assert texts(policy.generate(requests(first_seed=100), Sampling())) != together
    one_by_one = {}
    stream = policy.stream(Sampling())
    for number, request in reversed(list(enumerate(requests()))):
        stream.ask({number: request})
        one_by_one |= stream.work()
    while stream.pending:
        one_by_one |= stream.work()
    assert [one_by_one[number].text for number in range(12)] == together


def test_greedy_and_top_p(free, tiny):
    model, tokenizer = tiny
    with torch.inference_mode():
        logits = model(torch.tensor([tokenizer(PROMPTS[0])["input_ids"]])).logits[0, -1]
    ordered = torch.softmax(logits.double(), -1).sort(descending=True)
    requested = [Request(PROMPTS[0], seed=(n,)) for n in range(100)]
    greedy = free.generate(requested, Sampling(temperature=0, max_new_tokens=1))
    assert {int(response.tokens.token_ids[0]) for response in greedy} == {int(ordered.indices[0])}
    nucleus = free.generate(requested, Sampling(top_p=0.1, max_new_tokens=1))
    count = int((ordered.values.cumsum(0) < 0.1).sum()) + 1
    drawn = {int(response.tokens.token_ids[0]) for response in nucleus}
    assert len(drawn) > 1
    assert drawn <= set(ordered.indices[:count].tolist())


def test_new_weights_reach_the_engine(policy):
    """The engine's log-probabilities move with the trainer's, and nothing computed by the old weights is used again."""
    before = policy.generate(requests(), Sampling())
    old = {(response.text, request.prompt): response for response, request in zip(before, requests(), strict=True)}
    original = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    assert gap(policy, before) > 0.1
    policy.updated()
    after = policy.generate(requests(), Sampling())
    assert gap(policy, after) < 1e-4
    moved = [
        response.tokens.logprobs.sum() - old[key].tokens.logprobs.sum()
        for response, request in zip(after, requests(), strict=True)
        if (key := (response.text, request.prompt)) in old
    ]
    assert max(np.abs(moved)) > 0.1
    policy.model.load_state_dict(original)
    policy.updated()
    again = policy.generate(requests(), Sampling())
    assert texts(again) == texts(before)
    assert gap(policy, again) < 1e-4


def test_an_adapter_reaches_the_engine_as_part_of_the_weights(tiny):
    model, tokenizer = tiny
    settings = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
    adapted = add_adapters(copy.deepcopy(model), settings, seed=0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter += 0.1
    policy = VllmPolicy(adapted, tokenizer, constrain="admissible", **OPTIONS)
    responses = policy.generate(requests(), Sampling())
    assert gap(policy, responses) < 1e-4
    assert gap(LanguageModelPolicy(model, tokenizer, constrain="admissible"), responses) > 0.01


@pytest.mark.parametrize("adapter", ["merged", "requests"])
def test_a_young_adapter_is_seen_in_bfloat16(tiny, adapter):
    """The engine shows most of the change of log-probabilities by some optimiser steps: the slope over 700
    tokens, whose standard error is 0.06, of the engine's changes by the trainer's, in float32."""
    model = make_tiny_model(tiny[1], hidden_size=256, layers=2, heads=2, seed=0, device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():  # weights that bfloat16 has, so that the engine's base is the trainer's
            parameter.copy_(parameter.bfloat16().float())
    settings = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
    adapted = add_adapters(model, settings, seed=0)
    policy = VllmPolicy(adapted, tiny[1], adapter=adapter, dtype="bfloat16", constrain="none", **OPTIONS)
    requested = [Request(f"{n} hall {n * 7919 % 1000} x {n * 31 % 77}", (), seed=(7, n)) for n in range(100)]

    def scored(responses):
        records = [response.tokens for response in responses]
        return np.concatenate(score(policy, records, temperature=1.0, max_batch_tokens=4096))

    before = policy.generate(requested, Sampling(max_new_tokens=8))
    was = [response.tokens.logprobs for response in before]
    real = -scored(before)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(1e-3 * torch.sign(torch.randn(parameter.shape, generator=generator)))
    policy.updated()
    after = policy.generate(requested, Sampling(max_new_tokens=8))
    real += scored(before)
    same = [old.text == new.text for old, new in zip(before, after, strict=True)]
    assert sum(same) > 80
    rows = np.repeat(same, [len(values) for values in was])
    seen = np.concatenate(
        [new.tokens.logprobs - earlier for new, earlier, alike in zip(after, was, same, strict=True) if alike]
    )
    assert abs(seen @ real[rows] / (real[rows] @ real[rows]) - 1) < 0.35


def test_an_adapter_reaches_the_engine_by_requests_too_and_follows_it(tiny):
    settings = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
    adapted = add_adapters(copy.deepcopy(tiny[0]), settings, seed=0)
    policy = VllmPolicy(adapted, tiny[1], constrain="admissible", adapter="requests", **OPTIONS)
    for _ in range(3):
        assert gap(policy, policy.generate(requests(), Sampling())) < 1e-4
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_B" in name:
                    parameter += 0.1
        policy.updated()
    assert gap(LanguageModelPolicy(*tiny, constrain="admissible"), policy.generate(requests(), Sampling())) > 0.01


def test_a_model_divided_over_two_processes_responds_the_same(tiny, policy, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_SIM_MULTI_NUMA", "1")  # the two share what cores and memory there are
    expected = policy.generate(requests(), Sampling())
    divided = VllmPolicy(*tiny, constrain="admissible", tensor_parallel_size=2, **OPTIONS)
    responses = divided.generate(requests(), Sampling())
    assert texts(responses) == texts(expected)
    assert gap(divided, responses) < 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": 3}, "tensor_parallel_size=3: it has to divide the model's 2 attention heads"),
        ({"adapter": "requests"}, "engine.adapter=requests needs one shared adapter"),
    ],
)
def test_what_the_model_does_not_have_is_refused(tiny, options, message):
    with pytest.raises(ValueError, match=message):
        VllmPolicy(*tiny, constrain="none", **OPTIONS, **options).generate(requests(1), Sampling())


def test_an_adapter_by_requests_is_refused_in_float32_on_a_gpu(tiny, monkeypatch):
    from vllm.platforms import current_platform

    monkeypatch.setattr(current_platform, "is_cpu", lambda: False)
    settings = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
    model = add_adapters(copy.deepcopy(tiny[0]), settings, seed=0)
    policy = VllmPolicy(model, tiny[1], adapter="requests", dtype="float32", constrain="none", **OPTIONS)
    with pytest.raises(ValueError, match="on a GPU vLLM computes adapters in 16 bits alone"):
        policy.generate(requests(1), Sampling())


def test_a_server_has_no_options_of_the_process(tiny):
    with pytest.raises(ValueError, match="these two are of vLLM in the training process"):
        VllmPolicy(*tiny, server="http://localhost:1", tensor_parallel_size=2, constrain="none")


def test_a_single_admissible_action_needs_no_request(policy, monkeypatch):
    policy.generate(requests(1), Sampling())
    monkeypatch.setattr(policy._engine, "submit", lambda *_, **__: pytest.fail("the engine was asked"))
    (response,) = policy.generate([Request("Hall.", ("walk on",))], Sampling())
    assert response.text == "walk on"
    assert (response.tokens.logprobs == 0).all()


def test_a_broken_off_stream_leaves_nothing_behind(policy):
    expected = texts(policy.generate(requests(), Sampling()))
    stream = policy.stream(Sampling())
    stream.ask(dict(enumerate(requests(first_seed=50))))
    stream.work()
    assert texts(policy.generate(requests(), Sampling())) == expected


def test_a_rollout_is_the_same_in_step(policy):
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, 3, sections=1, max_episode_steps=8, split="all")
    env = ContextWrapper(vector, "bare", window=2, history_length=2)
    seeds = [(0,), (1,)]
    free, in_step = (
        collect(env, requested, Sampling(), task_ids=vector.task_ids[:2], seeds=seeds)
        for requested in (policy, InStep(policy))
    )
    assert free.steps == in_step.steps
    for record, other in zip(free.tokens, in_step.tokens, strict=True):
        np.testing.assert_array_equal(record.token_ids, other.token_ids)


@pytest.mark.parametrize("prompt", ["bare", "tools"])
def test_a_conversation_is_what_the_other_engine_plays_and_its_prefixes_are_read_once(policy, tiny, prompt):
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, 3, sections=2, max_episode_steps=12, split="all")
    env = ContextWrapper(vector, prompt, memory="conversation")
    rollout = collect(env, policy, Sampling(), task_ids=vector.task_ids[:2], seeds=[(0,), (1,)])
    assert gap(policy, [Response("", record) for record in rollout.tokens if len(record.choices)]) < 1e-4
    by_episode = {}
    for row in rollout.batch.in_order:
        by_episode.setdefault(rollout.batch.trajectory[row], []).append(rollout.tokens[row])
    assert max(map(len, by_episode.values())) > 3
    for records in by_episode.values():
        assert all(continues(later, record) for record, later in pairwise(records))
    assert sum(record.prompt_cached for record in rollout.tokens) > 0.2 * sum(map(len, rollout.tokens))
    responses = [env.prompt.write_response(step.action) for step in rollout.steps]
    assert [step.response for step in rollout.steps] == responses  # each is an admissible action, with `tools` a call
    assert all(response.startswith("<tool_call>") == (prompt == "tools") for response in responses)


class InStep:
    """The policy without its stream."""

    def __init__(self, policy):
        self.generate = policy.generate


@pytest.mark.parametrize("options", [{"memory": "full"}, {"memory": "notes"}, {"memory": "notes", "every": 2}])
def test_rollouts_of_every_form_of_memory_have_the_trainers_log_probabilities(free, options):
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks=2, group_size=2, max_episode_steps=5)
    env = ContextWrapper(vector, "brief", **options)
    rollout = collect(env, free, Sampling(max_new_tokens=6), task_ids=vector.task_ids[:2], seeds=[(3, 0), (3, 1)])
    env.close()
    scored = score(free, rollout.tokens, temperature=1.0, max_batch_tokens=4096)
    recorded = np.concatenate([record.logprobs[record.choices] for record in rollout.tokens])
    assert np.abs(recorded - np.concatenate(scored)).max() < 1e-4
    assert rollout.batch.extras["agent"].any() == ("every" in options)


def test_what_vllm_cannot_do_is_refused_before_it_starts(tiny):
    model = make_tiny_model(tiny[1], hidden_size=64, layers=1, heads=4, seed=0, device="cpu")
    with pytest.raises(ValueError, match=r"heads of size 32, 64, .* have 16 \(64 / 4\). For model=tiny set tiny.heads"):
        VllmPolicy(model, tiny[1], constrain="none", **OPTIONS).generate(requests(1, ()), Sampling())
    with pytest.raises(ValueError, match=r"Unknown engine.dtype 'float23'. Did you mean 'float32'"):
        VllmPolicy(*tiny, dtype="float23", constrain="none")


def test_a_response_must_have_room(free):
    with pytest.raises(ValueError, match=r"max_new_tokens=4097 make 8193 tokens, vLLM's limit is 8192"):
        free.generate(requests(1, ()), Sampling(max_new_tokens=4097))


SMALL = [
    "engine=vllm", "engine.enforce_eager=true", "engine.kv_cache_gib=0.05", "env.sections=1", "env.max_episode_steps=8",
    "rollout.num_tasks=2", "rollout.group_size=4", "warmstart.episodes=20", "warmstart.epochs=1", "tiny.heads=2",
    "evaluation.every=2", "evaluation.decoding_seeds=1", "checkpoint.every=1", "trainer.kl_coef=0.01",
    "trainer.mini_batch_size=16",
]  # fmt: skip


def train(run_dir, *overrides):
    """The numbers of a finished run."""
    small_runs.train(run_dir, *overrides, base=SMALL)
    return small_runs.numbers(run_dir)


def test_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    whole = train(tmp_path / "whole", "trainer.iterations=4")
    broken = train(tmp_path / "broken", "trainer.iterations=3")
    assert [line["loss"] for line in broken] == [line["loss"] for line in whole[:3]]
    assert train(tmp_path / "broken", "trainer.iterations=4", "resume=must")[3] == whole[3]
    assert 0 < max(line["mismatch_max"] for line in whole) < 1e-4


def test_each_of_two_processes_has_an_engine_with_the_weights_that_they_share(tmp_path):
    """FSDP2: no process has all weights outside of rollouts. One has no task of the evaluation to play."""
    settings = [*SMALL, f"run_dir={tmp_path / 'run'}", "trainer.iterations=2", "distributed=fsdp2"]
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", "-m", "hgpo_gym", "train",
         *settings],
        capture_output=True, text=True, check=False, env={**os.environ, "HGPO_GYM_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    assert "Traceback" not in process.stderr
    lines = read_metrics(tmp_path / "run")
    assert len(lines) == 2
    assert all(0 < line["mismatch_max"] < 1e-4 for line in lines)
    assert lines[0]["loss"] != lines[1]["loss"]


def test_rollouts_that_are_played_during_updates_have_the_numbers_of_those_after_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    options = ["rollout.staleness=1", "trainer.iterations=4", "trainer.learning_rate=1e-3", "trainer.warmup_steps=0"]
    after = train(tmp_path / "after", *options)
    ahead = train(tmp_path / "ahead", *options, "rollout.overlap=true")
    assert ahead == after
    assert after != train(tmp_path / "fresh", *options, "rollout.staleness=0")
    assert all(line["seconds_played"] > 0 for line in read_metrics(tmp_path / "ahead"))


def test_a_rollout_that_is_played_ahead_stops_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    options = ["rollout.staleness=1", "rollout.overlap=true", "rollout.group_size=64"]
    with Run(small_runs.settings(tmp_path / "run", *options, base=SMALL), Progress()) as run:
        run.learner.async_rollout.submit(0, [], run.learner.past)
    with pytest.raises(NotWantedError):
        run.learner.collect(0)
