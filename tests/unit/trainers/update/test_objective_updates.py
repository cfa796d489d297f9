"""Invariants of objectives: the split of a mini-batch, the number of processes, and a resume change nothing."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.policies.likelihood import measure, read_distributions
from hgpo_gym.policies.sampling import read_likelihood
from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.objectives import OBJECTIVES, Surrogate
from hgpo_gym.trainers.update.objectives.published.capo import norm_squared, sum_squared
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from tests.support.objective_updates import ADVANTAGES, COUNT, ONE_LEFT, drawn, update_by
from tests.support.small_models import gradient, make_policy, one_step_episodes, settings, updated, weights


@pytest.fixture(scope="module")
def records():
    return drawn()


@pytest.fixture(scope="module")
def whole(records):
    """By every objective, in a single pass."""
    return {name: update_by(name, records, max_batch_tokens=10_000) for name in OBJECTIVES}


def assert_same(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0], atol=2e-6, rtol=1e-4)
    assert ours[1] == pytest.approx(theirs[1], abs=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_micro_batches_change_nothing(records, whole, name):
    assert whole[name][0].norm() > 0.01
    for budget in (1, 60):
        assert_same(update_by(name, records, max_batch_tokens=budget), whole[name])


def test_nor_do_they_with_a_kl_loss(records):
    """Without advantages the divergence from the reference, which has other weights, is the whole gradient."""
    reference = make_policy()
    moved, _ = updated(reference, records, ADVANTAGES.values)
    options = {"reference": reference, "kl_coef": 0.5, "mini_batch_size": COUNT, "update_epochs": 1}
    whole, split = (
        updated(moved, records, np.zeros(COUNT), max_batch_tokens=budget, max_grad_norm=1e9, **options)
        for budget in (10_000, 60)
    )
    assert gradient(whole[0]).norm() > 1e-3
    assert_same((gradient(split[0]), split[1]), (gradient(whole[0]), whole[1]))


@pytest.mark.slow
def test_two_processes_change_nothing_and_have_their_gradients_once(whole, tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    done = subprocess.run(
        [*launch, "-m", "tests.support.objective_updates", str(tmp_path / "two.pt")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    two = torch.load(tmp_path / "two.pt")
    assert two["in_buckets"]
    assert_same(two["one_left"], update_by("clip_cov", drawn(), advantages=ONE_LEFT, max_batch_tokens=10_000))
    assert two["none_left"] == {"optimizer_steps": 6, "gradient_norm": 0.0, "learning_rate": 0.01}
    assert two["results"].keys() == whole.keys()
    for name, expected in whole.items():
        assert_same(two["results"][name], expected)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
@pytest.mark.parametrize("correction", ["token", "sequence_mask"])
def test_nor_do_they_with_tokens_left_out_and_weighed(records, aggregation, correction):
    options = {"low": 0.9} if correction == "sequence_mask" else {}
    changes = {"loss_aggregation": aggregation, "off_policy_limit": 0.0, "correction": Choice(correction, options)}
    gradient, metrics = update_by("capo", records, max_batch_tokens=10_000, **changes)
    assert 0.1 < metrics["clip_fraction"] < 0.9
    assert 0 < metrics["off_policy_dropped"] < 0.5
    assert (metrics["importance_dropped"] > 0) == (correction == "sequence_mask")
    assert_same(update_by("capo", records, max_batch_tokens=60, **changes), (gradient, metrics))


def test_what_a_pre_pass_draws_belongs_to_the_iteration(records):
    """So a resumed run draws the same; the shuffling has another stream."""
    gradients = [update_by("clip_cov", records, seed=seed)[0] for seed in ((5, 0, 3), (9, 0, 3), (5, 0, 4))]
    torch.testing.assert_close(gradients[0], gradients[1], atol=2e-6, rtol=1e-4)
    assert (gradients[0] - gradients[2]).norm() > 1e-3


def test_ppo_clip_with_bounds_of_0_2_is_the_default(records):
    policy, advantages = make_policy(), ADVANTAGES.values
    default = updated(policy, records, advantages)[1]
    for bounds, same in (({"clip_low": 0.2, "clip_high": 0.2}, True), ({"clip_low": 0.05, "clip_high": 0.1}, False)):
        assert (default == updated(policy, records, advantages, objective=Choice("ppo_clip", bounds))[1]) == same


def test_an_objective_sees_what_the_estimator_says_of_episodes_and_tokens(records, monkeypatch):
    """Rows that are not trained are left out; advantages of tokens take the place of the row's."""
    seen = []

    def watching(tokens):
        seen.append(tokens)
        return Surrogate(-tokens.advantages * tokens.logprobs, tokens.advantages > 0)

    monkeypatch.setitem(OBJECTIVES._all, "watching", watching)
    update = PolicyUpdate(make_policy(), None, settings(update_epochs=1), 1.0, objective=Choice("watching"))
    seen.clear()
    batch = replace(one_step_episodes(COUNT), trained=np.arange(COUNT) != 7)
    of_tokens = [None] * COUNT
    of_tokens[3] = np.arange(1, 1 + len(records[3].token_ids)) / 10
    update(records, batch, ADVANTAGES._replace(tokens=of_tokens), (0, 0, 0))
    trajectories, groups, advantages, targets = (
        torch.cat([values(tokens) for tokens in seen])
        for values in (
            lambda tokens: tokens.trajectory,
            lambda tokens: tokens.group,
            lambda tokens: tokens.advantages,
            lambda tokens: tokens.extras["target"],
        )
    )
    assert set(trajectories.tolist()) == set(range(COUNT)) - {7}
    assert torch.equal(groups, trajectories // 4)
    choices = records[3].choices
    torch.testing.assert_close(advantages[trajectories == 3], torch.from_numpy(of_tokens[3][choices]).float())
    others = trajectories != 3
    expected = torch.from_numpy(ADVANTAGES.values).float()[trajectories[others]]
    torch.testing.assert_close(advantages[others], expected)
    torch.testing.assert_close(targets, torch.from_numpy(ADVANTAGES.extras["target"]).float()[trajectories])
    of_tokens[3] = of_tokens[3][:-1]
    with pytest.raises(ValueError, match=r"Step 3: advantages of . tokens for a response of"):
        update(records, batch, ADVANTAGES._replace(tokens=of_tokens), (0, 0, 0))


def test_where_samples_are_dropped_a_mini_batch_of_which_every_token_is_makes_no_step(records):
    """Adam's momentum would go on without a gradient."""
    policy = make_policy()
    objective = Choice("capo", {"learning_rate": 0.01, "tau_fisher": 0.0})
    update = PolicyUpdate(
        policy, None, settings(weight_decay=0.1, update_epochs=1, zero_advantage="drop"), 1.0, objective=objective
    )
    before = weights(policy)
    metrics = update(records, one_step_episodes(COUNT), ADVANTAGES, (0, 0, 0))
    assert metrics["clip_fraction"] == 1
    assert metrics["optimizer_steps"] == 0
    torch.testing.assert_close(weights(policy), before, atol=0, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_what_capo_reads_is_the_squared_gradient_of_the_last_layer(temperature):
    """It is that of the logits times that of the hidden states divided by the temperature, in which they are linear."""
    torch.manual_seed(0)
    shape = {"vocab_size": 12, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2, tie_word_embeddings=False)).eval()
    record = TokenRecord(np.array([1, 2, 3]), np.array([5]), np.array([-1.0], dtype=np.float32))

    def read(distributions):
        return read_likelihood(distributions).logprobs, norm_squared(distributions), sum_squared(distributions)

    logprobs, norm, squares = read_distributions(model, [record], read, temperature=temperature)
    logprobs.sum().backward()
    of_logits = 1 - 2 * logprobs.exp() + squares
    expected = model.lm_head.weight.grad.square().sum()
    torch.testing.assert_close((norm * of_logits)[0].detach(), expected, rtol=1e-4, atol=0)


def test_a_policy_that_hides_its_distributions_is_refused_by_what_capo_reads():
    policy = SimpleNamespace(model=torch.nn.Linear(1, 1), likelihood=None)
    record = TokenRecord(np.array([1]), np.array([5]), np.array([-1.0], dtype=np.float32))
    with pytest.raises(TypeError, match=r"SimpleNamespace has no read_distributions.*logprobs, sum_squared"):
        measure(policy, [record], ("logprobs", sum_squared), temperature=1.0, max_batch_tokens=10)


def test_nor_does_the_temperature_change_what_a_table_is():
    policy = TabularPolicy(LogitTable(capacity=1), level=0)
    (response,) = policy.generate([Request("", ("left", "right"), seed=(0,), context_keys=(1,))], Sampling())
    (norm,) = policy.read_distributions([response.tokens], lambda read: (norm_squared(read),), temperature=0.5)
    assert norm.tolist() == [4.0]  # of its one logit, divided by the temperature
