"""The tabular policy: exact probabilities, a trace of training alone, and the trainer's promises kept with it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from hgpo_gym.memory.keys import chain_keys, hash_text, link
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.tabular import LogitTable, TableFullError, TabularPolicy
from hgpo_gym.runs.directory import read_metrics
from tests.support import small_runs
from tests.support.small_runs import numbers, whole_and_resumed

ACTIONS = ("open red door", "open blue door", "go back")
SMALL = ["model=tabular", "env.sections=2", "env.max_episode_steps=12", "evaluation.decoding_seeds=2"]


def keys(*observations, history_length=2):
    """The context keys after these observations of one episode."""
    hashes = np.array([hash_text(text) for text in observations], dtype=np.uint64)
    chain = chain_keys(hashes, np.arange(len(hashes)) == 0, history_length)
    return tuple(chain[-1].tolist())


def ask(*observations, responses=ACTIONS, task="Find the way.", seed=0):
    return Request("", responses, seed=(seed,), task=task, context_keys=keys(*observations))


def respond_all(policy, request):
    """A record of each of the request's answers."""
    responses = policy.generate([replace(request, seed=(seed,)) for seed in range(500)], Sampling())
    return {response.text: response.tokens for response in responses}


def teach(policy, request, logits):
    """Give the request's answers these logits; returns a record of each."""
    records = respond_all(policy, request)
    contexts, responses = (
        np.concatenate([getattr(records[text], name) for text in logits]) for name in ("prompt_ids", "token_ids")
    )
    policy.model.train()
    places = len(policy.model) + 1 + np.arange(len(logits))
    policy.model(link(contexts.view(np.uint64), responses.view(np.uint64)))
    policy.model.logits.data[places] = torch.tensor(list(logits.values()))
    return records


@pytest.fixture
def policy():
    return TabularPolicy(LogitTable(100), level=2)


def test_what_was_never_trained_on_is_uniform(policy):
    texts = [response.text for response in policy.generate([ask("hall", seed=n) for n in range(3000)], Sampling())]
    for action in ACTIONS:
        assert abs(np.mean([text == action for text in texts]) - 1 / 3) < 4 * np.sqrt(2 / 9 / 3000)
    records = [response.tokens for response in policy.generate([ask("hall"), ask("cellar")], Sampling())]
    np.testing.assert_allclose([record.logprobs[0] for record in records], -np.log(3), rtol=1e-6)


def test_probabilities_are_the_softmax_of_the_logits_at_the_temperature(policy):
    logits = {"open red door": 1.0, "open blue door": -1.0, "go back": 0.5}
    records = teach(policy, ask("sign", "hall"), logits)
    for temperature in (1.0, 0.4):
        values = np.array(list(logits.values())) / temperature
        expected = values - np.log(np.exp(values).sum())
        scored = score(policy, [records[text] for text in logits], temperature=temperature, max_batch_tokens=2)
        np.testing.assert_allclose(np.concatenate(scored), expected, rtol=1e-5)
        entropy = policy.likelihood([records["go back"]], temperature=temperature).entropy.item()
        assert entropy == pytest.approx(-(np.exp(expected) * expected).sum(), rel=1e-5)
        asked = [ask("sign", "hall", seed=n) for n in range(3000)]
        responses = policy.generate(asked, Sampling(temperature=temperature))
        for text, logprob in zip(logits, expected, strict=True):
            probability, frequency = np.exp(logprob), np.mean([response.text == text for response in responses])
            assert abs(frequency - probability) < 4 * np.sqrt(probability * (1 - probability) / 3000)
            drawn = {float(response.tokens.logprobs[0]) for response in responses if response.text == text}
            assert all(value == pytest.approx(logprob, rel=1e-5) for value in drawn)
    greedy = policy.generate([ask("sign", "hall", seed=n) for n in range(5)], Sampling(temperature=0))
    assert {response.text for response in greedy} == {"open red door"}
    nucleus = policy.generate([ask("sign", "hall", seed=n) for n in range(300)], Sampling(top_p=0.6))
    assert {response.text for response in nucleus} == {"open red door", "go back"}


def test_the_gradient_is_that_of_the_softmax(policy):
    """d log pi(a) / d logit(b) = [a = b] - pi(b): 2/3 at the drawn answer, -1/3 at the two others, 0 elsewhere."""
    (response,) = policy.generate([ask("hall")], Sampling())
    policy.model.train()
    policy.likelihood([response.tokens], temperature=1.0).logprobs.sum().backward()
    gradient = policy.model.logits.grad
    np.testing.assert_allclose(sorted(gradient[gradient != 0].tolist()), [-1 / 3, -1 / 3, 2 / 3], rtol=1e-6)
    assert gradient[0] == 0


def test_evaluation_leaves_no_trace_and_training_makes_an_entry_for_each_response_once(policy):
    records = [response.tokens for response in policy.generate([ask("hall"), ask("cellar")], Sampling())]
    score(policy, records, temperature=1.0, max_batch_tokens=100)
    assert len(policy.model) == 0
    for _ in range(2):
        policy.model.train()
        policy.likelihood(records, temperature=1.0)
        assert len(policy.model) == 6


def test_the_context_is_the_task_and_the_deepest_key_up_to_the_level():
    def contexts(level):
        policy = TabularPolicy(LogitTable(1), level)
        asked = {
            "here": ask("sign", "corridor", "hall"), "once more": ask("sign", "corridor", "hall"),
            "longer": ask("garden", "sign", "corridor", "hall"), "other sign": ask("post", "corridor", "hall"),
            "no history": ask("hall"), "other task": ask("sign", "corridor", "hall", task="Find the garden."),
        }  # fmt: skip
        responses = policy.generate(list(asked.values()), Sampling())
        return {name: int(response.tokens.prompt_ids[0]) for name, response in zip(asked, responses, strict=True)}

    deep, flat = contexts(2), contexts(0)
    assert deep["here"] == deep["once more"] == deep["longer"]
    assert len(set(deep.values())) == 4
    assert flat["here"] == flat["longer"] == flat["other sign"] == flat["no history"] != flat["other task"]


def test_responses_depend_on_their_seed_and_not_on_what_they_are_batched_with(policy):
    asked = [ask("hall", seed=n) for n in range(20)] + [ask("corridor", responses=("walk on", "go back"), seed=99)]
    together = policy.generate(asked, Sampling())
    apart = [policy.generate([request], Sampling())[0] for request in asked]
    assert [response.text for response in together] == [response.text for response in apart]
    assert len({response.text for response in together[:20]}) == 3


def test_one_response_needs_no_choice_and_a_repeated_one_counts_once(policy):
    (only,) = policy.generate([ask("sign", responses=("walk on",))], Sampling())
    assert only.text == "walk on"
    assert len(only.tokens.choices) == 0
    (doubled,) = policy.generate([ask("hall", responses=("go back", "walk on", "go back"))], Sampling())
    assert doubled.tokens.logprobs[0] == pytest.approx(np.log(1 / 2))


def test_a_policy_needs_actions_to_choose_from_context_keys_and_room(policy):
    with pytest.raises(ValueError, match="this environment names none"):
        policy.generate([ask("hall", responses=())], Sampling())
    with pytest.raises(ValueError, match="the environment needs a ContextWrapper"):
        policy.generate([Request("", ACTIONS)], Sampling())
    small = TabularPolicy(LogitTable(4), level=2)
    records = [response.tokens for response in small.generate([ask("hall"), ask("cellar")], Sampling())]
    small.model.train()
    with pytest.raises(TableFullError, match=r"model\.capacity=4 logits.*Set it higher"):
        small.likelihood(records, temperature=1.0)


def test_a_table_is_saved_and_loaded(policy, tmp_path):
    records = teach(policy, ask("sign", "hall"), {"open red door": 2.0, "go back": 0.0, "open blue door": -1.0})
    policy.save(tmp_path / "table")
    loaded = TabularPolicy.load(tmp_path / "table")
    assert (loaded.level, loaded.model.capacity, len(loaded.model)) == (2, 100, 3)
    for text in ACTIONS:
        assert loaded.likelihood([records[text]], temperature=1.0).logprobs.item() == pytest.approx(
            policy.likelihood([records[text]], temperature=1.0).logprobs.item()
        )
    with pytest.raises(FileNotFoundError, match=r"No table in .*nowhere: expected table\.safetensors"):
        TabularPolicy.load(tmp_path / "nowhere")


train = partial(small_runs.train, base=SMALL)


def entries_of(run_dir, iteration):
    return len(TabularPolicy.load(run_dir / "checkpoints" / f"iteration_{iteration:04d}" / "model").model)


@pytest.mark.parametrize("algo", ["grpo", "gigpo", "hgpo"])
def test_every_algorithm_learns_from_uniform_to_nearly_always(algo, tmp_path):
    """Two sections in twelve steps: uniformly random actions win 1 in 16 episodes."""
    summary = train(tmp_path, f"algo={algo}", "trainer.iterations=15", "evaluation.decoding_seeds=30")
    assert summary["success_before"] < 0.3
    assert summary["success_after"] > 0.9


def test_a_resumed_run_has_the_numbers_of_an_undisturbed_one(tmp_path):
    """Also where the table grows after the break: an entry gets the place that it would have had."""
    options = [
        "env.colours=6", "rollout.num_tasks=1", "trainer.kl_coef=0.01", "evaluation.every=3", "checkpoint.keep=9",
    ]  # fmt: skip
    whole, resumed = whole_and_resumed(tmp_path, *options, ended=3, iterations=6, base=SMALL)
    assert numbers(resumed) == numbers(whole)
    assert 0 < entries_of(resumed, 3) < entries_of(resumed, 6)


def test_the_kl_loss_holds_the_policy_to_the_uniform_one(tmp_path):
    for name, weight in (("free", 0.001), ("held", 10.0)):
        train(tmp_path / name, f"trainer.kl_coef={weight}", "trainer.iterations=12", "evaluation.every=0")
    free, held = (read_metrics(tmp_path / name)[-1] for name in ("free", "held"))
    assert free["kl_reference"] > 0.5
    assert held["kl_reference"] < 0.05
    assert held["success"] < 0.5 < free["success"]
