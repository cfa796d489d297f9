"""Objectives, corrections and means: by hand, in the limits where they are each other, and answer by answer."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.corrections import CORRECTIONS
from hgpo_gym.trainers.update.objectives import (
    OBJECTIVES,
    Prepared,
    Surrogate,
    Tokens,
    prepared_by,
)
from hgpo_gym.trainers.update.objectives.bound import bind_objective
from hgpo_gym.trainers.update.objectives.terms import kl_k3
from tests.support.token_cases import choice, gradient_of, responses_of

SAME_AT_FIRST = ("ppo_clip", "gspo", "gmpo", "cispo", "sapo", "bpo", "kpo", "hispo", "fiberpo", "dppo")


def gradient(tokens, name, **options):
    return gradient_of(choice(name, **options).surrogate(tokens).loss.sum(), tokens)


LENGTHS, ADVANTAGES = (1, 4, 12, 3, 60), (1.0, -0.5, 2.0, 0.0, -1.5)


@pytest.mark.parametrize("name", SAME_AT_FIRST)
def test_on_the_first_mini_batch_nearly_all_objectives_have_the_same_gradient(name):
    zero = responses_of(LENGTHS, ADVANTAGES, torch.zeros(80))
    torch.testing.assert_close(gradient(zero, name), -zero.advantages, atol=1e-12, rtol=0)
    wide = {"clip_low": 0.2, "clip_high": 0.2} if name in ("gspo", "kpo") else {}
    noise = 1e-4 * torch.randn(80, generator=torch.Generator().manual_seed(0))
    near = responses_of(LENGTHS, ADVANTAGES, noise)
    torch.testing.assert_close(gradient(near, name, **wide), -near.advantages, atol=1e-3, rtol=0)


def test_a_responses_tokens_share_one_ratio_by_gspo_in_float32_too():
    """Else some of them would be clipped and others not."""
    generator = torch.Generator().manual_seed(0)
    start, log_ratios = -3 * torch.rand(8000, generator=generator), 2e-4 * torch.randn(8000, generator=generator)
    tokens = responses_of((8,) * 1000, (1.0,) * 1000, log_ratios)
    tokens = tokens._replace(logprobs=start + log_ratios, old_logprobs=start, advantages=torch.ones(8000))
    loss = choice("gspo").surrogate(tokens).loss.reshape(1000, 8)
    assert torch.equal(loss.min(dim=1).values, loss.max(dim=1).values)
    assert len(loss.unique()) > 100


def test_a_pre_pass_gives_columns_by_themselves_or_says_what_is_wrong(monkeypatch):
    def mine(tokens):
        return Surrogate(-tokens.extras["doubled"] * tokens.logprobs, tokens.logprobs > 0)

    @prepared_by(lambda rows, _: {"doubled": 1})
    def wrong(tokens):
        return mine(tokens)

    monkeypatch.setitem(OBJECTIVES._all, "wrong", wrong)
    with pytest.raises(ValueError, match="Objective 'wrong': its pre-pass has to give a list with a dictionary of col"):
        bind_objective(Choice("wrong"))
    listed = prepared_by(lambda rows, _: [{"doubled": 2 * row.advantages} for row in rows])(mine)
    monkeypatch.setitem(OBJECTIVES._all, "mine", listed)
    row = SimpleNamespace(advantages=np.float32(3))
    assert bind_objective(Choice("mine")).prepare([row, row], None) == Prepared([{"doubled": 6}, {"doubled": 6}])


@pytest.mark.parametrize(
    ("objective", "wrong"),
    [
        (lambda t: Surrogate((-t.advantages * t.logprobs).mean(), t.logprobs > 0), r"its loss has the shape \[\]"),
        (lambda t: Surrogate(-t.advantages * t.logprobs.detach(), t.logprobs > 0), "its loss has no gradient"),
        (lambda t: Surrogate(-t.logprobs[:, None], t.logprobs > 0), r"of 3 tokens its loss has the shape \[3, 1\]"),
        (lambda t: Surrogate(-t.logprobs, torch.zeros(1)), r"of 3 tokens its clipped has the shape \[1\]"),
        (lambda t: Surrogate(-t.logprobs, torch.zeros(3)), r"its clipped has torch\.float32"),
        (lambda t: Surrogate(-t.logprobs, None), "its clipped has NoneType"),  # type: ignore[arg-type]
        (lambda t: -t.advantages * t.logprobs, "it gives Tensor"),
    ],
)
def test_what_is_no_loss_of_each_token_is_refused(objective, wrong, monkeypatch):
    monkeypatch.setitem(OBJECTIVES._all, "mine", objective)
    with pytest.raises(ValueError, match=f"Objective 'mine' has to give Surrogate.*{wrong}"):
        bind_objective(Choice("mine"))


def test_on_the_first_mini_batch_gbpo_pushes_away_from_the_median():
    """A group of returns 0, 0, 0, 10 (signal 0 for the median), and one of 0, 4, 10, whose middle one is the median."""
    target = torch.tensor([0.5, 0.5, 0.5, 0.9, 0.2, 0.5, 0.8])
    tokens = responses_of((1,) * 7, (-0.5, -0.5, -0.5, 1.5, -1, -0.1, 1.1), torch.zeros(7), target=target)
    expected = -tokens.advantages.abs() * (target - 0.5).sign()
    torch.testing.assert_close(gradient(tokens, "gbpo"), expected.double(), atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="algo=gbpo, or objective=bpo"):
        choice("gbpo").surrogate(tokens._replace(extras={}))


def test_rounding_errors_of_engine_and_trainer_do_not_push():
    """At the kinks of |r - target| and |d| a difference of 1e-7 would have the gradient of a large one."""
    rounded = torch.tensor([2e-7, -2e-7, 3e-7, -1e-6, 0, 1e-6, -3e-7])
    target = torch.tensor([0.5, 0.5, 0.5, 0.9, 0.2, 0.5, 0.8])
    advantages = (-0.5, -0.5, -0.5, 1.5, -1, -0.1, 1.1)
    tokens = responses_of((1,) * 7, advantages, rounded, target=target, selected=torch.ones(7))
    expected = -tokens.advantages.abs() * (target - 0.5).sign()
    torch.testing.assert_close(gradient(tokens, "gbpo"), expected.double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(gradient(tokens, "kl_cov"), -tokens.advantages, atol=1e-5, rtol=0)


def some_responses(scale=0.3):
    difference = scale * torch.randn(80, generator=torch.Generator().manual_seed(1))
    return responses_of(LENGTHS, ADVANTAGES, difference)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_advantage_of_0_teaches_nothing(name):
    columns = {
        "target": torch.full((80,), 0.7),
        "selected": torch.zeros(80),
        "entropy_scale": torch.linspace(-1, 1, 80),
    }
    tokens = responses_of(
        LENGTHS, (0.0,) * 5, some_responses(1.0).logprobs.detach() + 1, loss_mask=torch.ones(80), **columns
    )
    loss = choice(name).surrogate(tokens).loss
    assert loss.abs().max() == 0
    assert gradient_of(loss.sum(), tokens).abs().max() == 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_responses_are_judged_one_by_one(name):
    """Loss, gradient and acting of a response are the same without the others, extreme log-ratios among them."""
    columns = {"target": torch.linspace(0, 1, 80), "selected": (torch.arange(80) % 7 == 0).double()}
    columns |= {"entropy_scale": torch.linspace(-1, 1, 80), "loss_mask": (torch.arange(80) % 5 > 0).double()}
    difference = some_responses().logprobs.detach() - torch.linspace(-3, -0.5, 80, dtype=torch.float64)
    difference[7], difference[40] = 90.0, -90.0
    tokens, objective = responses_of(LENGTHS, ADVANTAGES, difference, **columns), choice(name)
    whole = objective.surrogate(tokens)
    pushed = gradient_of(whole.loss.sum(), tokens)
    assert pushed.isfinite().all()
    for response in range(len(LENGTHS)):
        mask = tokens.sequence_index == response
        fields = {field: value[mask] for field, value in tokens._asdict().items() if field != "extras"}
        fields |= {"sequence_index": torch.zeros(int(mask.sum()), dtype=torch.int64)}
        fields |= {"extras": {column: values[mask] for column, values in tokens.extras.items()}}
        alone = Tokens(**fields)
        alone = alone._replace(logprobs=alone.logprobs.detach().requires_grad_())
        part = objective.surrogate(alone)
        torch.testing.assert_close(part.loss, whole.loss[mask])
        assert torch.equal(part.clipped, whole.clipped[mask])
        torch.testing.assert_close(gradient_of(part.loss.sum(), alone), pushed[mask])


@pytest.mark.parametrize(("name", "options"), [("token", {}), ("sequence_mask", {}), ("sequence_k3", {"limit": 1.0})])
def test_no_gradient_goes_through_a_correction(name, options):
    old = torch.tensor([-0.7, -0.1, -1.6, -0.5], requires_grad=True)
    weights = CORRECTIONS.bind(Choice(name, options))(old, torch.full((4,), -1.0), torch.tensor([0, 0, 1, 1]))
    assert not weights.requires_grad


def test_kl_by_hand_and_where_it_is_cut():
    logprobs = torch.tensor([-1.0, -1.0, -9.0, -30.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-1.0, -2.0, -1.0, -1.0], dtype=torch.float64)
    kl = kl_k3(logprobs, reference)
    np.testing.assert_allclose(kl.detach(), [0, np.exp(-1), 10, 10])
    (slope,) = torch.autograd.grad(kl.sum(), logprobs)
    np.testing.assert_allclose(slope, [0, 1 - np.exp(-1), 0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gspoo", {}, r"Unknown objective 'gspoo'. Did you mean 'gspo'\?"),
        ("gspo", {"clip_hi": 1}, r"Unknown option of gspo 'clip_hi'. Did you mean 'clip_high'\?"),
        ("hispo", {}, "objective hispo needs the option delta_sequence, which has no default"),
        ("capo", {}, "objective capo needs the option learning_rate"),
        ("ppo_clip", {"dual_clip": 0.5}, "dual_clip=0.5: the largest ratio must be above 1"),
        ("ppo_clip", {"clip_low": -1}, "clip_low=-1: choose 0 or more"),
        ("cispo", {"cap": 0}, "cap=0: the largest weight must be above 0"),
        ("sapo", {"tau_negative": 0}, "tau_negative=0: the temperature"),
        ("kpo", {"measurement_noise": 0}, "measurement_noise=0: must be above 0"),
        ("fiberpo", {"share_positive": 2}, "share_positive=2: a share"),
        ("hapo", {"quantile": 1.5}, "quantile=1.5: a share"),
        ("hapo", {"clip_high": -1}, "clip_high=-1: choose 0 or more"),
        ("hapo", {"clip_alpha": -3}, "clip_alpha=-3: below -1 it turns bounds round"),
        ("kl_cov", {"share": 0}, "share=0: a share"),
        ("clip_cov", {"low": 9}, "low=9, high=5.0: bounds of the covariance"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(name, options, message):
    with pytest.raises(ValueError, match=message):
        bind_objective(Choice(name, options))
