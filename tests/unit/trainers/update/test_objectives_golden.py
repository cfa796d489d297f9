"""Objectives, corrections and means over a mini-batch against values computed independently: losses, gradients, where
objectives act, and what their pre-passes choose."""

import numpy as np
import pytest
import torch

from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.aggregation import Totals, aggregate
from hgpo_gym.trainers.update.corrections import CORRECTIONS
from hgpo_gym.trainers.update.loss import off_policy
from hgpo_gym.trainers.update.objectives import Tokens
from hgpo_gym.trainers.update.objectives.published.hapo import entropy_scale
from hgpo_gym.trainers.update.samples import TrainingSample
from tests.support import golden
from tests.support.token_cases import choice, gradient_of

GOLDEN = golden.load("objectives")
CASES = {case["name"]: case for case in GOLDEN["cases"]}
READS = ("entropy", "norm_squared", "sum_squared", "sum_cubed")


def tokens_of(case, dtype=torch.float64, extras=None):
    """The case as an objective sees it."""

    def tensor(values):
        return torch.tensor(values, dtype=dtype)

    record = torch.tensor(case["record"])
    columns = {"target": tensor(case["target"])[record]}
    columns |= {name: torch.as_tensor(values).to(dtype) for name, values in (extras or {}).items()}
    return Tokens(
        logprobs=tensor(case["logprobs"]).requires_grad_(),
        entropy=tensor(case["entropy"]),
        old_logprobs=tensor(case["start"]),
        behaviour=tensor(case["behaviour"]),
        advantages=tensor(case["advantage"])[record],
        sequence_index=record,
        trajectory=record,
        group=torch.zeros_like(record),
        extras=columns,
    )


def rows_of(case):
    """The case as a pre-pass sees it, in float64."""
    record, columns = np.array(case["record"]), {name: np.array(case[name]) for name in READS}
    return [
        TrainingSample(
            tokens=None,
            advantages=np.full((record == response).sum(), advantage),
            behaviour=np.array(case["behaviour"])[record == response],
            trajectory=response,
            group=0,
            old_logprobs=np.array(case["start"])[record == response],
            before={name: values[record == response] for name, values in columns.items()},
        )
        for response, advantage in enumerate(case["advantage"])
    ]


def prepared(objective, case):
    """The columns of the pre-pass, tokens one after the other."""
    if objective.prepare is None:
        return {}
    columns = objective.prepare(rows_of(case), np.random.default_rng(0)).columns
    return {name: np.concatenate([row[name] for row in columns]) for name in columns[0]}


def selection(entry, count):
    marks = np.zeros(count)
    marks[entry["selected"]] = 1
    return {"selected": marks}


@pytest.mark.promise("Losses and gradients have the values computed apart from this package.")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_golden_losses_gradients_and_where_objectives_act(name, dtype):
    case, tolerance = CASES[name], 1e-8 if dtype == torch.float64 else 1e-5
    for entry in case["objectives"]:
        objective = choice(entry["objective"], **entry["options"])
        extras = prepared(objective, case)
        if entry["objective"] == "clip_cov":
            extras = selection(entry, len(case["record"]))
        tokens = tokens_of(case, dtype, extras)
        loss, clipped = objective.surrogate(tokens)
        where = f"{entry['objective']} {entry['options']}"
        for ours, theirs in ((loss, entry["loss"]), (gradient_of(loss.sum(), tokens), entry["gradient"])):
            np.testing.assert_allclose(ours.detach(), theirs, rtol=tolerance, atol=tolerance, err_msg=where)
        assert loss.dtype == dtype
        assert clipped.dtype == torch.bool
        assert clipped.nonzero()[:, 0].tolist() == entry["acted"], where


@pytest.mark.parametrize("name", CASES)
def test_golden_tokens_that_a_pre_pass_chooses(name):
    case = CASES[name]
    count = len(case["record"])
    for entry in case["objectives"]:
        columns = prepared(choice(entry["objective"], **entry["options"]), case)
        if entry["objective"] == "capo":
            assert np.flatnonzero(columns["loss_mask"] == 0).tolist() == entry["dropped"]
        if entry["objective"] == "kl_cov":
            assert np.flatnonzero(columns["selected"]).tolist() == sorted(entry["selected"])
        if entry["objective"] == "clip_cov":
            chosen = np.flatnonzero(columns["selected"])
            assert set(chosen) <= set(entry["candidates"])
            assert len(chosen) == len(entry["selected"]) == min(entry["count"], len(entry["candidates"])) <= count


def test_golden_scale_of_entropies():
    for entry in GOLDEN["samplers"]["hapo_scale"]:
        scale = entropy_scale(np.array(entry["entropies"]), entry["quantile"], released=entry["released"])
        np.testing.assert_allclose(scale, entry["scale"], atol=1e-8, rtol=0)
    assert entropy_scale(np.full(5, 0.3), 0.8).tolist() == [0] * 5


def test_golden_share_of_a_lasting_log_ratio_that_kpo_lets_through():
    """A log-ratio of 1 at every token: what the filter has of it after so many."""
    for entry in GOLDEN["samplers"]["kalman_gains"]:
        length = max(entry["at"])
        tokens = tokens_of(CASES["by hand"])._replace(
            logprobs=torch.ones(length, dtype=torch.float64),
            old_logprobs=torch.zeros(length, dtype=torch.float64),
            advantages=-torch.ones(length, dtype=torch.float64),
            sequence_index=torch.zeros(length, dtype=torch.int64),
        )
        options = {name: entry[name] for name in ("process_noise", "measurement_noise", "initial_variance")}
        loss = choice("kpo", clipped=False, **options).surrogate(tokens).loss
        passed = loss.log()[torch.tensor(entry["at"]) - 1]
        np.testing.assert_allclose(passed, entry["share_of_a_constant_passed"], rtol=1e-6)


@pytest.mark.promise("Corrections for an engine that differs have the values computed apart from this package.")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_golden_corrections_and_off_policy_responses(name, dtype):
    case, tolerance = CASES[name], 1e-8 if dtype == torch.float64 else 1e-5
    tokens = tokens_of(case, dtype)
    for entry in case["corrections"]:
        weigh = CORRECTIONS.bind(Choice(entry["correction"], entry["options"]))
        weights = weigh(tokens.old_logprobs, tokens.behaviour, tokens.sequence_index)
        np.testing.assert_allclose(weights, entry["weight"], rtol=tolerance, atol=tolerance, err_msg=str(entry))
        assert (weights == 0).nonzero()[:, 0].tolist() == entry["dropped"]
    for entry in case["off_policy_answers"]:
        assert tokens.sequence_index[off_policy(tokens, entry["limit"])].unique().tolist() == entry["dropped"]


@pytest.mark.parametrize("name", CASES)
def test_golden_means_over_a_mini_batch(name):
    case = CASES[name]
    for entry in case["aggregates"]:
        objective = choice(entry["objective"], **entry["options"])
        tokens = tokens_of(case, extras=prepared(objective, case))
        weigh = CORRECTIONS.bind(Choice(entry["correction"], entry["correction_options"]))
        weights = weigh(tokens.old_logprobs, tokens.behaviour, tokens.sequence_index)
        saved = tokens.extras.get("loss_mask")
        count = len(tokens.sequence_index) if saved is None else int(saved.sum())
        loss = aggregate(
            weights * objective.surrogate(tokens).loss, tokens.sequence_index, Totals(count, len(case["advantage"])),
            entry["aggregation"], saved, entry["constant"],
        )  # fmt: skip
        gradient = gradient_of(loss, tokens)
        np.testing.assert_allclose(loss.item(), entry["value"], atol=1e-8, rtol=1e-8, err_msg=str(entry)[:150])
        np.testing.assert_allclose(gradient, entry["gradient"], atol=1e-8, rtol=1e-8, err_msg=str(entry)[:150])
