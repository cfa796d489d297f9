"""trainer.rows=episode: one sequence an episode gives the loss and gradient of one a response."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hgpo_gym.advantages import Advantages, StepBatch
from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.conversations import by_conversation, joined
from hgpo_gym.trainers.update.objectives import OBJECTIVES
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from hgpo_gym.trainers.update.samples import make_samples
from tests.support.objective_updates import NEEDED
from tests.support.small_models import gradient, make_policy, settings, watched

EPISODES, TURNS = 4, 3
COUNT = EPISODES * TURNS


def conversation(generator, constrained):
    """Records of an episode whose prompts continue one another; every second response has a constraint."""
    whole, records = generator.integers(256, size=5), []
    for turn in range(TURNS):
        response = generator.integers(256, size=int(generator.integers(2, 6)))
        allowed = [np.unique([token, *generator.integers(256, size=4)]) for token in response]
        allowed[0] = response[:1]  # a token without a choice
        free = not (constrained and turn % 2)
        record = TokenRecord(
            whole,
            response,
            -generator.normal(5.7 if free else 1.5, 0.2, len(response)).astype(np.float32),
            None if free else tuple(allowed),
        )
        records.append(record)
        whole = np.concatenate((whole, response, generator.integers(256, size=4)))
    return records


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(0)
    episodes = [conversation(generator, constrained=bool(number % 2)) for number in range(EPISODES)]
    return [records[turn] for turn in range(TURNS) for records in episodes]  # in the order of `collect`


@pytest.fixture(scope="module")
def batch():
    step, trajectory = np.divmod(np.arange(COUNT), EPISODES)
    zeros = np.zeros(COUNT)
    return StepBatch(trajectory // 2, trajectory, step, zeros, np.ones((COUNT, 1), dtype=np.int64), zeros)


def advantages(records):
    """Of each step, one of them 0; of two responses, of each token."""
    values = np.where(np.arange(COUNT) == 5, 0.0, np.linspace(-1, 1, COUNT))
    tokens = [
        np.linspace(-1, 1, len(record.token_ids)) if row in (2, 6) else None for row, record in enumerate(records)
    ]
    return Advantages(values, {"target": np.linspace(0.1, 0.9, COUNT)}, tokens=tokens)


def update_by(rows, records, batch, objective="ppo_clip", **changes):
    policy = make_policy()
    policy.model.double()
    options = {"mini_batch_size": COUNT, "update_epochs": 1, "max_grad_norm": 1e9, **changes}
    correction = options.pop("correction", Choice("none"))
    reference = make_policy() if options.get("kl_coef") else None
    chosen = Choice(objective, NEEDED.get(objective, {}))
    update = watched(
        PolicyUpdate(policy, reference, settings(rows=rows, **options), 1.0, objective=chosen, correction=correction)
    )
    metrics = update(records, batch, advantages(records), (0, 0, 0))
    return policy, metrics


def assert_same(records, batch, **options):
    (step, step_metrics), (episode, metrics) = (
        update_by(rows, records, batch, **options) for rows in ("step", "episode")
    )
    assert gradient(step).norm() > 0.01
    torch.testing.assert_close(gradient(episode), gradient(step), atol=1e-6, rtol=1e-6)
    assert metrics == pytest.approx(step_metrics, abs=1e-6, rel=1e-6)


@pytest.mark.promise("trainer.rows=episode has the loss and gradient of rows=step, for every objective.")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_the_same_loss_and_gradient(records, batch, name):
    assert_same(records, batch, objective=name, max_batch_tokens=70)


@pytest.mark.parametrize(
    ("aggregation", "zero_advantage"), [("token_mean", "mask"), ("sequence_mean", "keep"), ("sequence_sum", "drop")]
)
def test_so_has_every_aggregation_with_all_other_terms(records, batch, aggregation, zero_advantage):
    terms = {"kl_coef": 0.1, "entropy_coef": 0.01, "off_policy_limit": 0.5, "correction": Choice("sequence")}
    assert_same(records, batch, loss_aggregation=aggregation, zero_advantage=zero_advantage, **terms)


def test_the_model_reads_an_episode_once(records, batch):
    policy, read = make_policy(), []
    policy.model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    for rows in ("step", "episode"):
        update = PolicyUpdate(policy, None, settings(rows=rows, max_batch_tokens=1, update_epochs=1), 1.0)
        update(records, batch, advantages(records), (0, 0, 0))
    lengths = np.array([len(record) for record in records]).reshape(TURNS, EPISODES)
    assert sum(read[:-EPISODES]) == lengths.sum() - lengths.flat[5]  # a row without an advantage is not read
    assert sum(read[-EPISODES:]) == lengths[-1].sum()


def test_mini_batches_hold_whole_episodes(records, batch, monkeypatch):
    held = {}
    for rows in ("step", "episode"):
        update = PolicyUpdate(make_policy(), None, settings(rows=rows, update_epochs=1, mini_batch_size=6), 1.0)
        batches = held[rows] = []
        compute = update.loss.totals
        monkeypatch.setattr(
            update.loss,
            "totals",
            lambda rows, batches=batches, compute=compute: (batches.append(rows), compute(rows))[1],
        )
        update(records, batch, advantages(records), (0, 0, 0))
    first, second = ([row.trajectory for row in rows] for rows in held["episode"])
    assert len(first) == len(second) == 6
    assert not set(first) & set(second)
    assert set.intersection(*({row.trajectory for row in rows} for rows in held["step"]))


def test_a_prompt_that_does_not_continue_the_last_begins_a_sequence(records, batch):
    samples = make_samples(records, batch, advantages(records))
    assert [len(rows) for rows in by_conversation(samples)] == [TURNS] * EPISODES
    changed = replace(records[4], prompt_ids=np.concatenate((records[4].prompt_ids[1:], [0])))
    other = make_samples([*records[:4], changed, *records[5:]], batch, advantages(records))
    first = [rows for rows in by_conversation(other) if rows[0].trajectory == 0]
    assert [[row.tokens.token_ids.tolist() for row in rows] for rows in first] == [
        [records[0].token_ids.tolist(), records[8].token_ids.tolist()],
        [changed.token_ids.tolist()],
    ]
    adapters = make_samples(
        [replace(record, adapter=str(row)) for row, record in enumerate(records)], batch, np.ones(COUNT)
    )
    assert len(by_conversation(adapters)) == COUNT


def test_a_joined_record_has_the_tokens_of_all_and_their_choices(records):
    whole = joined([records[1], records[5], records[9]])
    assert len(whole) == len(records[9])
    choices = np.concatenate([record.token_ids[record.choices] for record in (records[1], records[5], records[9])])
    np.testing.assert_array_equal(whole.token_ids[whole.choices], choices)
