"""One policy update: what moves, what no cutting up changes, and what corrects an engine that differs."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgpo_gym.extras import install_command
from hgpo_gym.policies import Sampling
from hgpo_gym.policies import likelihood as likelihood_module
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import likelihood, score
from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.diverged import NonFiniteError
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from tests.support.small_models import (
    gradient,
    make_policy,
    one_step_episodes,
    responses,
    settings,
    updated,
    watched,
    weights,
)

ADVANTAGES = np.linspace(-1, 1, 24)


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture(scope="module")
def records(policy):
    return responses(policy)


def test_an_update_raises_the_probability_of_good_responses(policy, records):
    good = np.array([1.0 if record.token_ids[1] == records[0].token_ids[1] else -1.0 for record in records])
    after, _ = updated(policy, records, good, update_epochs=5)

    def mean_of_good(scored):
        return np.mean([sum(values) for values, advantage in zip(scored, good, strict=True) if advantage > 0])

    options = {"temperature": 1.0, "max_batch_tokens": 10_000}
    assert mean_of_good(score(after, records, **options)) > mean_of_good(score(policy, records, **options)) + 0.05


def test_gradients_take_no_memory_after_the_update(policy, records):
    after, _ = updated(policy, records, ADVANTAGES)
    assert gradient(after).norm() > 0.01
    assert [parameter.grad for parameter in after.model.parameters()] == [None] * len(list(after.model.parameters()))


def test_a_gradient_that_is_not_finite_stops_the_update_before_the_weights_change(policy, records):
    with pytest.raises(NonFiniteError, match="epoch 1, mini-batch 1"):
        updated(policy, records, np.full(24, np.nan))


def test_a_step_that_leaves_no_numbers_as_weights_is_an_error(policy, records, monkeypatch):
    """Its gradient was finite: without this the next rollout would fail, by weights that a checkpoint has kept."""

    def overshoot(self):
        for weight in self.param_groups[0]["params"]:
            weight.data[...] = np.inf

    monkeypatch.setattr("hgpo_gym.trainers.update.optimizer.AdamW.step", torch.no_grad()(overshoot))
    with pytest.raises(NonFiniteError, match="After the last step weights are infinite or not numbers"):
        updated(policy, records, ADVANTAGES, mini_batch_size=24, update_epochs=1)


def test_the_mismatch_of_an_engine_with_the_same_weights_is_a_rounding_error(policy, records):
    for recompute in (False, True):
        _, metrics = updated(policy, records, ADVANTAGES, recompute_logprobs=recompute)
        assert 0 <= metrics["mismatch_mean"] <= metrics["mismatch_max"] < 1e-5
        assert abs(metrics["mismatch_kl"]) < 1e-6


def test_the_kl_to_behaviour_is_estimated_by_tokens_that_the_behaviour_drew(policy, records):
    """By k3 of KL(behaviour, policy), which such tokens estimate without bias."""
    generator = np.random.default_rng(0)
    drawn = [
        replace(record, logprobs=record.logprobs + generator.normal(0, 0.3, len(record.logprobs)).astype(np.float32))
        for record in records
    ]
    _, metrics = updated(policy, drawn, ADVANTAGES, mini_batch_size=24, update_epochs=1)
    recomputed = np.concatenate(score(policy, drawn, temperature=1.0, max_batch_tokens=10_000))
    difference = recomputed - np.concatenate([record.logprobs[record.choices] for record in drawn])
    assert metrics["kl_behaviour"] == pytest.approx(np.mean(np.exp(difference) - difference - 1), rel=1e-4)
    assert metrics["kl_behaviour"] != pytest.approx(np.mean(np.exp(-difference) + difference - 1), rel=1e-2)


def test_the_mismatch_of_an_engine_that_draws_otherwise_is_measured(policy):
    """The engine draws at temperature 0.5, the trainer takes it for 1: the difference is known for every token."""
    drawn = responses(policy, sampling=Sampling(temperature=0.5))
    recomputed = score(policy, drawn, temperature=1.0, max_batch_tokens=10_000)
    difference = np.concatenate([values - r.logprobs[r.choices] for values, r in zip(recomputed, drawn, strict=True)])
    exact = {
        "mismatch_mean": np.abs(difference).mean(),
        "mismatch_max": np.abs(difference).max(),
        "mismatch_kl": np.mean(np.exp(difference) - difference - 1),
    }
    assert exact["mismatch_kl"] > 0.01
    _, metrics = updated(policy, drawn, ADVANTAGES, recompute_logprobs=True)
    assert {name: metrics[name] for name in exact} == pytest.approx(exact, abs=1e-5)
    _, metrics = updated(policy, drawn, ADVANTAGES, mini_batch_size=24)  # at no cost: the first mini-batch has them all
    assert {name: metrics[name] for name in exact} == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("correction", ["token", "sequence"])
def test_correction_brings_the_gradient_closer_to_that_on_policy(policy, correction):
    """Responses drawn at temperature 0.7 where the policy has 1, against as many of the policy at 1."""
    count = 1500
    worth = {"go left": 0.5, "go right": 1.0, "stay here": -1.0}

    def gradient_of(temperature, **changes):
        drawn = responses(policy, count, Sampling(temperature=temperature), prompt="place")
        texts = [policy.tokenizer.decode(record.token_ids, skip_special_tokens=True) for record in drawn]
        step = {"mini_batch_size": count, "update_epochs": 1, "entropy_coef": 0.0, "max_grad_norm": 1e9}
        advantages = np.array([worth[text] for text in texts])
        after, metrics = updated(policy, drawn, advantages, max_batch_tokens=100_000, **step, **changes)
        return gradient(after), metrics

    on_policy, _ = gradient_of(1.0)
    uncorrected, _ = gradient_of(0.7)
    corrected, metrics = gradient_of(0.7, correction=Choice(correction, {"cap": 100.0}))
    assert (corrected - on_policy).norm() < 0.5 * (uncorrected - on_policy).norm()
    assert metrics["importance_weight"] == pytest.approx(1, abs=0.1)
    assert metrics["importance_capped"] == 0
    capped, metrics = gradient_of(0.7, correction=Choice(correction, {"cap": 0.8}))
    assert metrics["importance_capped"] > 0.5
    assert (capped - on_policy).norm() > (corrected - on_policy).norm()


def test_bfloat16_computes_almost_the_same_and_leaves_weights_and_optimiser_in_float32(policy, records):
    exact, exact_metrics = updated(policy, records, ADVANTAGES, update_epochs=1, learning_rate=1e-6)
    after, metrics = updated(policy, records, ADVANTAGES, update_epochs=1, learning_rate=1e-6, precision="bfloat16")
    assert metrics["loss"] == pytest.approx(exact_metrics["loss"], abs=0.01)
    assert metrics["loss"] != exact_metrics["loss"]
    assert torch.cosine_similarity(gradient(exact), gradient(after), dim=0) > 0.99
    assert {value.dtype for value in after.model.parameters()} == {torch.float32}
    assert {value.dtype for value in after.gradients} == {torch.float32}
    moved = weights(after)["model.layers.0.mlp.up_proj.weight"] != weights(policy)["model.layers.0.mlp.up_proj.weight"]
    assert moved.float().mean() > 0.9


def test_generation_in_bfloat16_is_close_to_the_trainer_in_bfloat16(policy):
    half = LanguageModelPolicy(policy.model, policy.tokenizer, constrain="admissible", precision="bfloat16")
    drawn = responses(half)
    in_bfloat16, in_float32 = (
        updated(policy, drawn, ADVANTAGES, precision=precision, mini_batch_size=24, update_epochs=1)[1]
        for precision in ("bfloat16", "float32")
    )
    assert 0 < in_bfloat16["mismatch_mean"] < 0.01
    assert in_float32["mismatch_mean"] > 1e-4  # the engine really computed in another format
    with pytest.raises(ValueError, match="Did you mean 'bfloat16'"):
        LanguageModelPolicy(policy.model, policy.tokenizer, precision="bfloat", constrain="none")


def test_the_entropy_of_a_response_is_the_mean_over_its_choices(policy, records):
    """Each of what its token was drawn from: the softmax over what was allowed there."""
    update = PolicyUpdate(policy, None, settings(max_batch_tokens=60), 0.7)
    only = replace(records[0], allowed=tuple(np.array([token]) for token in records[0].token_ids))
    entropies = update.entropies([*records, only])
    for record, found in zip(records, entropies, strict=False):
        whole = torch.from_numpy(np.concatenate([record.prompt_ids, record.token_ids]))[None]
        with torch.inference_mode():
            logits = policy.model(whole).logits[0, len(record.prompt_ids) - 1 :].double() / 0.7
        drawn_from = [logits[place, torch.from_numpy(record.allowed[place])].softmax(0) for place in record.choices]
        expected = np.mean([-(chances * chances.log()).sum().item() for chances in drawn_from])
        assert found == pytest.approx(expected, abs=1e-5)
    assert entropies[-1] == 0.0


def test_bfloat16_weights_lose_small_changes_which_is_why_float32_is_the_default(policy, records):
    half = make_policy()
    half.model.to(torch.bfloat16)
    after, metrics = updated(half, records, ADVANTAGES, update_epochs=1, learning_rate=1e-6)
    assert metrics["mismatch_max"] < 0.1
    saved = weights(after)["model.layers.0.mlp.up_proj.weight"] == weights(half)["model.layers.0.mlp.up_proj.weight"]
    assert saved.float().mean() > 0.9
    result = likelihood(half.model, records[:3])
    assert result.logprobs.dtype == result.entropy.dtype == torch.float32


def test_gradient_checkpointing_computes_layers_twice_and_the_same_gradient(policy, records):
    """By as many passes as there are micro-batches: forward, and again in the backward pass."""
    changes = {"mini_batch_size": 24, "update_epochs": 1, "max_batch_tokens": 10_000}
    passes = []
    for checkpointing in (False, True):
        counted = make_policy()
        counted.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: passes.append(1))
        update = watched(PolicyUpdate(counted, None, settings(gradient_checkpointing=checkpointing, **changes), 1.0))
        update(records, one_step_episodes(24), ADVANTAGES, (0,))
        assert len(passes) == (2 if checkpointing else 1)
        passes.clear()
        torch.testing.assert_close(gradient(counted), gradient(updated(policy, records, ADVANTAGES, **changes)[0]))


def test_a_table_has_no_layers_to_checkpoint():
    with pytest.raises(ValueError, match="Table has no layers to checkpoint"):
        PolicyUpdate(TabularPolicy(LogitTable(10), 0), None, settings(gradient_checkpointing=True), 1.0)


def test_logits_in_pieces_give_the_same_gradient(policy, records, monkeypatch):
    changes = {"mini_batch_size": 24, "update_epochs": 1, "max_batch_tokens": 10_000}
    whole, metrics = updated(policy, records, ADVANTAGES, **changes)
    sizes = []
    head = policy.model.lm_head.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    monkeypatch.setattr(likelihood_module, "LOGITS_AT_ONCE", 5 * policy.model.config.vocab_size)
    pieces, piece_metrics = updated(policy, records, ADVANTAGES, **changes)
    head.remove()
    assert max(sizes) == 5
    torch.testing.assert_close(gradient(whole), gradient(pieces), atol=1e-6, rtol=1e-4)
    assert metrics == pytest.approx(piece_metrics, abs=1e-6)


def test_an_optimiser_in_8_bits_goes_nearly_the_same_way_and_resumes_to_the_same_numbers(tmp_path):
    pytest.importorskip("bitsandbytes")
    # Tensors of fewer than 4,096 numbers stay in 32 bits.
    wide, drawn = make_policy(hidden_size=64), responses(make_policy(hidden_size=64))
    before = weights(wide)
    exact, _ = updated(wide, drawn, ADVANTAGES, update_epochs=4)
    after, _ = updated(wide, drawn, ADVANTAGES, update_epochs=4, optimizer="adamw_8bit")
    for name in ("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        ways = [(weights(one)[name] - before[name]).flatten() for one in (exact, after)]
        assert torch.cosine_similarity(*ways, dim=0) > 0.9

    first = PolicyUpdate(wide, None, settings(optimizer="adamw_8bit"), 1.0)
    first(drawn, one_step_episodes(24), ADVANTAGES, (0,))
    state = first.optimizer.state[wide.model.model.layers[0].mlp.up_proj.weight]
    assert state["state1"].dtype == torch.uint8
    torch.save(first.state_dict(), tmp_path / "update.pt")
    middle = weights(wide)
    first(drawn, one_step_episodes(24), ADVANTAGES, (1,))
    again = make_policy(hidden_size=64)
    again.model.load_state_dict(middle)
    second = PolicyUpdate(again, None, settings(optimizer="adamw_8bit"), 1.0)
    second.load_state_dict(torch.load(tmp_path / "update.pt", weights_only=True))
    second(drawn, one_step_episodes(24), ADVANTAGES, (1,))
    assert all(torch.equal(value, weights(wide)[name]) for name, value in weights(again).items())


def test_muon_orthogonalises_matrices_leaves_the_rest_to_adamw_and_resumes_to_the_same_numbers(tmp_path):
    policies = {name: make_policy() for name in ("muon", "adamw")}
    updates = {name: PolicyUpdate(one, None, settings(optimizer=name), 1.0) for name, one in policies.items()}
    before, rate = weights(policies["adamw"]), settings().learning_rate
    for name, policy in policies.items():
        torch.manual_seed(0)
        for weight in policy.model.parameters():
            weight.grad = torch.randn_like(weight)
        updates[name].optimizer.step()
    by_muon, by_adamw = (weights(policy) for policy in policies.values())
    for name, value in by_adamw.items():
        if value.ndim == 1 or "embed" in name:
            torch.testing.assert_close(by_muon[name], value)
        elif "lm_head" not in name:
            step = (by_muon[name] - before[name]) / rate
            torch.testing.assert_close(step.square().mean().sqrt().item(), 0.2, rtol=0.2, atol=0)
            spectrum = torch.linalg.svdvals(step)
            assert spectrum.max() < 5 * spectrum.min(), name  # of a random matrix it is 100

    drawn, again = responses(make_policy()), make_policy()
    updates["muon"](drawn, one_step_episodes(24), ADVANTAGES, (0,))
    torch.save(updates["muon"].state_dict(), tmp_path / "update.pt")
    again.model.load_state_dict(weights(policies["muon"]))
    resumed = PolicyUpdate(again, None, settings(optimizer="muon"), 1.0)
    resumed.load_state_dict(torch.load(tmp_path / "update.pt", weights_only=True))
    for update in (updates["muon"], resumed):
        update(drawn, one_step_episodes(24), ADVANTAGES, (1,))
    for name, value in weights(again).items():
        assert torch.equal(value, weights(policies["muon"])[name])


def test_an_optimiser_whose_package_is_missing_says_so(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=re.escape(f"adamw_8bit needs the package bitsandbytes: {install_command('bitsandbytes')}"),
    ):
        PolicyUpdate(policy, None, settings(optimizer="adamw_8bit"), 1.0)
