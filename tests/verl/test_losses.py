"""Objectives as verl's policy losses are this package's own, token by token."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn

from hgpo_gym.adapters.verl.limits import COLUMN_OF
from hgpo_gym.adapters.verl.losses import ObjectiveConfig, register_objectives
from hgpo_gym.adapters.verl.objective_column import ResponseValues, objective_column, training_sample
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.aggregation import Totals, aggregate
from hgpo_gym.trainers.update.objectives import OBJECTIVES, Tokens
from hgpo_gym.trainers.update.objectives.bound import bind_objective

AGGREGATIONS = {
    "token-mean": ("token_mean", None),
    "seq-mean-token-mean": ("sequence_mean", None),
    "seq-mean-token-sum-norm": ("sequence_sum", 7.0),
}
IN_VERL = [name for name in OBJECTIVES if name not in ("capo", "gbpo", *COLUMN_OF)]
OPTIONS = {
    "clip_cov": {"share": 0.2, "low": -10.0, "high": 10.0},
    "hapo": {},
    "hispo": {"delta_sequence": 0.2, "delta_token": 0.4},
    "kl_cov": {"share": 0.2},
}


def rows(seed=0, count=6, length=9):
    """Right-padded rows of different lengths, with a row of padding."""
    rng = np.random.default_rng(seed)
    lengths = [*rng.integers(1, length + 1, size=count - 1), 0]
    mask = torch.tensor(np.arange(length) < np.array(lengths)[:, None])
    old, new = (torch.tensor(rng.normal(-1, 0.3, size=mask.shape), dtype=torch.float32) for _ in range(2))
    advantages = torch.tensor(rng.normal(size=(count, 1)), dtype=torch.float32).expand(mask.shape)
    return mask, old, new, advantages


def settings(mask, mode, factor, **policy_loss):
    """The arguments that verl's actor passes to a policy loss."""
    info = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": int(mask.any(1).sum())}
    return SimpleNamespace(
        policy_loss=ObjectiveConfig(loss_mode=mode, **policy_loss),
        global_batch_info={**info, "loss_scale_factor": factor},
    )


def loss_in_verl(name, aggregation="token-mean", factor=None, **policy_loss):
    mask, old, new, advantages = rows()
    new.requires_grad_()
    config = settings(mask, name, factor, **policy_loss)
    loss, metrics = get_policy_loss_fn(name)(old, new, advantages, mask, aggregation, config)
    loss.backward()
    return loss.item(), new.grad[mask], metrics


def loss_here(choice, aggregation="token_mean", constant=None):
    mask, old, new, advantages = rows()
    flat = new[mask].requires_grad_()
    index = torch.arange(len(mask))[:, None].expand(mask.shape)[mask]
    zeros = torch.zeros_like(index)
    tokens = Tokens(flat, torch.zeros_like(flat), old[mask], old[mask], advantages[mask], index, index, zeros, {})
    surrogate, clipped = bind_objective(choice).surrogate(tokens)
    totals = Totals(int(mask.sum()), int(mask.any(1).sum()))
    loss = aggregate(surrogate, index, totals, aggregation, None, constant)
    loss.backward()
    return loss.item(), flat.grad, clipped.float().mean().item()


@pytest.mark.promise("Inside verl objectives have the loss and the gradient that they have here.")
def test_every_objective_that_verl_can_compute():
    assert {f"hgpo_gym.{name}" for name in IN_VERL} < set(register_objectives())
    clips = 0
    for name in IN_VERL:
        loss, gradient, metrics = loss_in_verl(f"hgpo_gym.{name}")
        expected, wanted_gradient, clipped = loss_here(Choice(name))
        assert loss == pytest.approx(expected, abs=1e-6), name
        np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-6, err_msg=name)
        assert metrics["actor/pg_clipfrac"] == pytest.approx(clipped), name
        clips += clipped > 0
    assert clips > 3


def test_responses_of_a_conversation_are_sequences():
    """Rows of two responses with a hole between have the loss of a row each."""
    mask, *tensors = rows()
    joined = [torch.cat((tensor[::2], torch.zeros(3, 1), tensor[1::2]), dim=1) for tensor in (mask, *tensors)]
    for name in IN_VERL:
        found, gradients = [], []
        for (row_mask, old, new, advantages), kind in (((mask, *tensors), "step"), (joined, "episode")):
            leaf = new.clone().requires_grad_()
            config = settings(mask, "hgpo_gym", None, objective=name, rows=kind)
            loss, _ = get_policy_loss_fn("hgpo_gym")(old, leaf, advantages, row_mask, "token-mean", config)
            loss.backward()
            found.append(loss.item())
            gradients.append(leaf.grad)
        assert found[0] == pytest.approx(found[1], abs=1e-6), name
        torch.testing.assert_close(
            torch.cat((gradients[0][::2], gradients[0][1::2]), dim=1), gradients[1][:, [*range(9), *range(10, 19)]]
        )


@pytest.mark.parametrize("mode", list(AGGREGATIONS))
def test_aggregations(mode):
    ours, constant = AGGREGATIONS[mode]
    loss, gradient, _ = loss_in_verl("hgpo_gym.gspo", mode, constant)
    expected, wanted_gradient, _ = loss_here(Choice("gspo"), ours, constant)
    assert loss == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-6)


def test_options_and_the_name_without_a_suffix():
    narrow = {"clip_low": 0.01, "clip_high": 0.02}
    loss, *_ = loss_in_verl("hgpo_gym", objective="ppo_clip", options=narrow)
    assert loss == pytest.approx(loss_here(Choice("ppo_clip", narrow))[0], abs=1e-6)
    assert loss != pytest.approx(loss_here(Choice("ppo_clip"))[0], abs=1e-3)


def test_objectives_with_a_column_of_their_own():
    """The column is that of the objective's pre-pass over all rows; the loss then sees the rows alone."""
    assert OPTIONS.keys() == COLUMN_OF.keys()
    mask, behaviour, new, advantages = rows()
    rng = np.random.default_rng(5)
    old, entropy = behaviour + torch.tensor(rng.normal(0, 0.3, mask.shape), dtype=torch.float32), behaviour.abs()
    columns_of = [tensor.split(1) for tensor in (advantages, behaviour, old, entropy)]
    responses = [
        ResponseValues(*(tensor[0][row_mask].numpy() for tensor in of_row))
        for row_mask, *of_row in zip(mask[:-1], *columns_of, strict=False)
    ]
    for name, options in OPTIONS.items():
        choice, is_hispo = Choice(name, options), name == "hispo"
        column = objective_column(choice, COLUMN_OF[name], responses, (1,), keep=True)
        padded = torch.zeros_like(old).masked_scatter(mask, torch.from_numpy(np.concatenate(column)))
        config = settings(mask, f"hgpo_gym.{name}", None, options=options)
        loss_function, leaf = get_policy_loss_fn(f"hgpo_gym.{name}"), new.clone().requires_grad_()
        loss, _ = loss_function(
            old if is_hispo else behaviour, leaf, advantages, mask, "token-mean", config, rollout_is_weights=padded
        )
        loss.backward()

        bound = bind_objective(choice, extras=())
        samples = [training_sample(response, number) for number, response in enumerate(responses)]
        prepared = bound.prepare(samples, np.random.default_rng((1,))).columns if bound.prepare else [{}] * len(samples)
        extras = {key: torch.from_numpy(np.concatenate([of_row[key] for of_row in prepared])) for key in prepared[0]}
        flat, index = new[mask].requires_grad_(), torch.arange(len(mask))[:, None].expand(mask.shape)[mask]
        denominator, zeros = (old if is_hispo else behaviour)[mask], torch.zeros_like(index)
        entropies, engine = torch.zeros_like(flat), behaviour[mask]
        tokens = Tokens(flat, entropies, denominator, engine, advantages[mask], index, index, zeros, extras)
        totals = Totals(int(mask.sum()), int(mask.any(1).sum()))
        all_expected = aggregate(bound.surrogate(tokens).loss, index, totals, "token_mean", None, None)
        all_expected.backward()
        assert loss.item() == pytest.approx(all_expected.item(), abs=1e-6), name
        np.testing.assert_allclose(leaf.grad[mask], flat.grad, atol=1e-6, err_msg=name)
        if not is_hispo:
            assert any(values.any() for values in column), name


def test_what_verl_does_not_pass_on_is_refused():
    with pytest.raises(ValueError, match="objective=capo needs quantities of tokens that verl does not pass"):
        loss_in_verl("hgpo_gym.capo", options={"learning_rate": 1e-3})
    with pytest.raises(ValueError, match=r"objective=clip_cov needs the column 'selected'.*trainer_mode=steps_sync"):
        loss_in_verl("hgpo_gym.clip_cov")
    with pytest.raises(ValueError, match="objective=gbpo takes its targets from the estimator"):
        loss_in_verl("hgpo_gym.gbpo")
    with pytest.raises(ValueError, match=r"Unknown objective 'gpso'.*gspo"):
        loss_in_verl("hgpo_gym", objective="gpso")


def test_a_micro_batch_of_padding_has_a_gradient_of_0():
    mask, old, new, advantages = rows()
    new.requires_grad_()
    nothing = torch.zeros_like(mask)
    loss, _ = get_policy_loss_fn("hgpo_gym.gspo")(old, new, advantages, nothing, "token-mean", settings(mask, "", None))
    loss.backward()
    assert loss.item() == 0
    assert not new.grad.any()
