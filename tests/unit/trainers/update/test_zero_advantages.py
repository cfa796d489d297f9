"""Responses whose advantage is 0: they move nothing, and a policy with nothing to learn stays as it is."""

import copy
import io

import numpy as np
import pytest
import torch
from rich.console import Console

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.objectives import OBJECTIVES
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from tests.support.small_models import (
    ACTIONS,
    gradient,
    make_policy,
    one_step_episodes,
    responses,
    settings,
    updated,
    weights,
)
from tests.support.small_runs import numbers, train
from tests.support.token_cases import NEEDED

COUNT = 24
ADVANTAGES = np.linspace(-1, 1, COUNT)
NOTHING = np.zeros(COUNT)
SOME = np.where(np.arange(COUNT) % 2, ADVANTAGES, 0.0)
WHOLE = {"mini_batch_size": 4 * COUNT, "update_epochs": 1, "max_grad_norm": 1e9}


def language_model():
    policy = make_policy()
    return policy, responses(policy, COUNT)


def adapter():
    pytest.importorskip("peft")
    from hgpo_gym.policies.language_model import LanguageModelPolicy
    from hgpo_gym.policies.lora import LoraSettings, add_adapters

    plain = make_policy()
    lora = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
    policy = LanguageModelPolicy(add_adapters(plain.model, lora, seed=0), plain.tokenizer, constrain="admissible")
    return policy, responses(policy, COUNT)


def table():
    policy = TabularPolicy(LogitTable(64), level=0)
    requested = [Request("", ACTIONS, seed=(n,), task="Go.", context_keys=(n % 7 + 1,)) for n in range(COUNT)]
    return policy, [response.tokens for response in policy.generate(requested, Sampling())]


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture(scope="module")
def records(policy):
    return responses(policy, COUNT)


def state(update):
    """Copies of all that an update may change."""
    saved = update.state_dict()
    return copy.deepcopy((weights(update.policy), saved["optimizer"]["state"], saved["schedule"]["last_epoch"]))


def whole(policy):
    """All weights as one vector. Adam makes a step of any gradient, so single ones differ by rounding."""
    return torch.cat([value.flatten() for value in weights(policy).values()])


def assert_equal(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("make", [language_model, adapter, table])
def test_an_update_without_samples_changes_no_weight(make):
    """Nor the optimiser, whose momentum of an earlier update would go on; weight decay waits as well."""
    policy, records = make()
    update = PolicyUpdate(policy, None, settings(weight_decay=0.1, zero_advantage="drop"), 1.0)
    untouched = state(update)
    update(records, one_step_episodes(COUNT), ADVANTAGES, (0,))
    before = state(update)
    assert any(not torch.equal(value, untouched[0][name]) for name, value in before[0].items())
    assert update(records, one_step_episodes(COUNT), NOTHING, (1,)) == {"optimizer_steps": 0, "gradient_norm": 0.0}
    assert_equal(state(update), before)


@pytest.mark.parametrize("make", [language_model, adapter, table])
def test_masked_samples_alone_make_steps_with_a_gradient_of_zero(make):
    """As AdamW makes them: momentum goes on, and weight decay."""
    policy, records = make()
    update = PolicyUpdate(policy, None, settings(weight_decay=0.1, zero_advantage="mask"), 1.0)
    update(records, one_step_episodes(COUNT), ADVANTAGES, (0,))
    weight = next(iter(update.optimizer.state))
    expected = weight.detach().clone().requires_grad_()
    twin = torch.optim.AdamW([expected], lr=update.settings.learning_rate, weight_decay=0.1)
    twin.state[expected] = copy.deepcopy(update.optimizer.state[weight])
    metrics = update(records, one_step_episodes(COUNT), NOTHING, (1,))
    steps = metrics["optimizer_steps"]
    assert steps > 0
    assert metrics["gradient_norm"] == 0
    for _ in range(steps):
        expected.grad = torch.zeros_like(expected)
        twin.step()
    torch.testing.assert_close(weight, expected)


@pytest.mark.parametrize("make", [language_model, table])
def test_where_such_responses_are_kept_the_bonus_alone_moves_weights(make):
    policy, records = make()
    update = PolicyUpdate(policy, None, settings(zero_advantage="keep"), 1.0)
    update(records, one_step_episodes(COUNT), ADVANTAGES, (0,))
    before = weights(policy)
    update(records, one_step_episodes(COUNT), NOTHING, (1,))
    assert any((value - before[name]).abs().max() > 1e-4 for name, value in weights(policy).items())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_objective_moves_weights_without_an_advantage(policy, records, name):
    after, _ = updated(policy, records, NOTHING, objective=Choice(name, NEEDED.get(name, {})), recompute_logprobs=True)
    assert_equal(weights(after), weights(policy))


@pytest.mark.parametrize("zeros", [1, 12, 48])
def test_gradient_and_bonus_do_not_depend_on_how_many_such_responses_there_are(policy, records, zeros):
    """The update equals that of the other responses alone, metrics included."""
    more = responses(policy, zeros, prompt="elsewhere {}")
    dropped = WHOLE | {"zero_advantage": "drop"}
    alone, expected = updated(policy, records, ADVANTAGES, **dropped)
    after, metrics = updated(policy, [*records, *more], np.append(ADVANTAGES, np.zeros(zeros)), **dropped)
    assert gradient(alone).norm() > 0.01
    torch.testing.assert_close(gradient(after), gradient(alone), atol=1e-6, rtol=1e-4)
    assert metrics == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("how", "steps"), [("drop", 3), ("mask", 6), ("keep", 6)])
def test_half_of_the_responses_make_half_of_the_optimiser_steps_unless_the_others_keep_their_places(
    policy, records, how, steps
):
    _, metrics = updated(policy, records, SOME, zero_advantage=how, mini_batch_size=4, update_epochs=2)
    assert metrics["optimizer_steps"] == 2 * steps


def test_steps_follow_from_the_number_of_episodes_alone(policy, records):
    """24 episodes of one step: six mini-batches of four, each with one of six samples that have an advantage."""
    few = np.where(np.arange(COUNT) < 6, 1.0, 0.0)
    for advantages in (ADVANTAGES, few, NOTHING):
        options = {"mini_batch_size": None, "mini_batch_episodes": 4, "update_epochs": 1}
        assert updated(policy, records, advantages, **options)[1]["optimizer_steps"] == 6


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
@pytest.mark.parametrize(("size", "budget"), [(8, 10_000), (8, 60), (COUNT, 60), (7, 200)])
def test_masked_responses_are_kept_ones_without_a_bonus(policy, records, aggregation, size, budget):
    """The same weights after several steps, where no mini-batch is without an advantage; only metrics are of fewer."""
    settings = {"entropy_coef": 0.0, "mini_batch_size": size, "max_batch_tokens": budget, "update_epochs": 2}
    masked, all_saved = (
        updated(policy, records, SOME, zero_advantage=how, loss_aggregation=aggregation, **settings)
        for how in ("mask", "keep")
    )
    assert masked[1]["optimizer_steps"] == all_saved[1]["optimizer_steps"] == 2 * -(-COUNT // size)
    assert masked[1]["gradient_norm"] == pytest.approx(all_saved[1]["gradient_norm"], rel=1e-4)
    movement = whole(all_saved[0]) - whole(policy)
    assert movement.norm() > 0.1
    assert (whole(masked[0]) - whole(all_saved[0])).norm() < 1e-3 * movement.norm()


@pytest.mark.parametrize("budget", [60, 10_000])
def test_with_a_kl_loss_they_are_held_to_the_reference_and_have_no_bonus(policy, records, budget):
    """The bonus is the same as that of the others alone, which make up half of the mini-batch's tokens or so."""
    moved, _ = updated(policy, records, ADVANTAGES)

    def gradient_of(advantages, entropy_coef, **changes):
        changes = {"kl_coef": 0.1, "entropy_coef": entropy_coef, "max_batch_tokens": budget, **WHOLE, **changes}
        return gradient(updated(moved, records, advantages, reference=policy, **changes)[0])

    torch.testing.assert_close(gradient_of(NOTHING, 0.5), gradient_of(NOTHING, 0.0), atol=1e-6, rtol=1e-4)
    assert gradient_of(NOTHING, 0.0).norm() > 1e-3
    assert (gradient_of(NOTHING, 0.5, zero_advantage="keep") - gradient_of(NOTHING, 0.0)).norm() > 1e-3

    bonus = gradient_of(SOME, 0.5) - gradient_of(SOME, 0.0)
    learned = [record for record, advantage in zip(records, SOME, strict=True) if advantage]
    options = {"kl_coef": 0.0, "max_batch_tokens": budget, **WHOLE}
    with_bonus, without = (
        gradient(updated(moved, learned, SOME[SOME != 0], entropy_coef=coef, **options)[0]) for coef in (0.5, 0.0)
    )
    share = sum(len(record.choices) for record in learned) / sum(len(record.choices) for record in records)
    assert 0.3 < share < 0.7
    torch.testing.assert_close(bonus, share * (with_bonus - without), atol=1e-5, rtol=1e-3)


def test_a_run_without_a_success_stays_as_it_was_and_shows_no_entropy(tmp_path):
    """Four steps are too few to leave the maze, so that all returns are equal."""
    lines = io.StringIO()
    options = ["algo=grpo", "env.max_episode_steps=4", "trainer.iterations=3", "evaluation.every=0"]
    train(tmp_path / "drop", *options, progress=Progress(Console(file=lines)))
    assert [line["advantage_zero_share"] for line in numbers(tmp_path / "drop")] == [1.0] * 3
    assert all("entropy" not in line and line["gradient_norm"] == 0 for line in numbers(tmp_path / "drop"))
    assert lines.getvalue().count("KL      -  entropy     -  seconds") == 3
    train(tmp_path / "keep", *options, "trainer.zero_advantage=keep")
    assert all(line["entropy"] > 0 for line in numbers(tmp_path / "keep"))
