"""Similar observations under one context key: values computed apart from this package, and what clustering promises."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, cluster_observations, estimate
from hgpo_gym.advantages.statistics import discounted_returns, relative_to_group
from hgpo_gym.memory import KeyFunction, hash_text
from hgpo_gym.memory.similarity import leaders
from tests.support import golden
from tests.support.step_batches import random_batch, random_records

NOT_COLUMNS = ("name", "intermediate", "expected")


def texts_of(batch: StepBatch) -> Mapping[int, str]:
    assert batch.texts is not None
    return batch.texts


def batch_of(*episodes: Sequence[str], **columns) -> StepBatch:
    """A group of episodes, each the texts that it visits."""
    rows = [(number, step, text) for number, episode in enumerate(episodes) for step, text in enumerate(episode)]
    records: dict[str, Any] = {
        "group": ["task"] * len(rows),
        "trajectory": [number for number, *_ in rows],
        "step": [step for _, step, _ in rows],
        "observation": [text for *_, text in rows],
        "reward": [float(step) for _, step, _ in rows],
    }
    return StepBatch.from_records(history_length=2, **records | columns)


@pytest.mark.promise("Similar observations become one key as in values computed apart from this package.")
def test_golden_clusters(subtests):
    for case in golden.load("credit_more"):
        columns = {name: values for name, values in case.items() if name not in NOT_COLUMNS}
        batch = StepBatch.from_records(history_length=3, **columns)
        for expected in case["expected"]:
            if "clusters" not in expected:
                continue
            options = {
                name: value for name, value in expected.items() if name not in ("estimator", "advantage", "clusters")
            }
            clustered = cluster_observations(batch, texts_of(batch), **expected["clusters"])
            with subtests.test(f"{case['name']}: {expected['estimator']} {options} {expected['clusters']}"):
                found = estimate(expected["estimator"], clustered, **options)
                np.testing.assert_allclose(found, expected["advantage"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", ["words", "characters", "difflib"])
def test_leaders_are_those_of_the_definition(kind):
    """Without bounds, and text by text instead of leader by leader."""
    generator = np.random.default_rng(3)
    words = ["lamp", "desk", "a", "the", "red", "drawer"]
    texts = list({" ".join(generator.choice(words, generator.integers(9))) for _ in range(80)})
    if kind == "difflib":  # from 200 characters on it ignores the frequent ones
        texts = [text + " shelf" * 40 for text in texts[:30]]
    for threshold in (0.0, 0.3, 0.6, 0.75, 0.9, 1.0):
        found: list[int] = []
        for index, text in enumerate(texts):
            parts = [str.split(part) if kind == "words" else part for part in (text, *texts)]
            near = (
                leader
                for leader in sorted(set(found))
                if SequenceMatcher(None, parts[0], parts[leader + 1], autojunk=kind == "difflib").ratio() >= threshold
            )
            found.append(next(near, index))
        assert leaders(texts, threshold, kind).tolist() == found
    assert leaders(["", "a"], 0.5).tolist() == [0, 1]


def test_a_text_joins_a_leader_and_no_chain_forms():
    """b is like a and c, which are not alike; a is visited most, so that b joins it."""
    a, b, c = "one two three four", "two three four five", "three four five six"
    batch = batch_of([a, a, b], [c], [b, c])
    keys = cluster_observations(batch, texts_of(batch), 0.7).context_keys[:, 0]
    assert keys.tolist() == batch.context_keys[[0, 0, 0, 3, 0, 3], 0].tolist()
    rows = cluster_observations(batch_of([c, b], [a]), texts_of(batch), 0.7, order="rows").context_keys[:, 0]
    assert rows[0] == rows[1] != rows[2]


def test_one_is_the_identity_and_zero_makes_one_state_of_a_group():
    for seed in range(6):
        batch = random_batch(seed)
        batch = replace(batch, penalty=np.zeros(len(batch)))
        assert cluster_observations(batch, texts_of(batch), 1.0) is batch
        one = cluster_observations(batch, texts_of(batch), 0.0)
        returns = discounted_returns(batch, 0.95)
        step_term = estimate("gigpo", one, gamma=0.95) - estimate("gigpo", batch, gamma=0.95, step_advantage_weight=0)
        expected = relative_to_group(returns, batch.group_labels, "mean_std_norm", ddof=1)
        np.testing.assert_allclose(step_term, expected, rtol=0, atol=1e-9)


def test_order_of_rows_and_names_of_episodes_do_not_matter():
    for seed in range(6):
        batch = random_batch(seed)
        shuffled = np.random.default_rng(seed).permutation(len(batch))
        other = replace(batch.take(shuffled), trajectory=-batch.trajectory[shuffled])
        expected = cluster_observations(batch, texts_of(batch), 0.5)
        found = cluster_observations(other, texts_of(batch), 0.5)
        assert np.array_equal(found.context_keys, expected.context_keys[shuffled])
        assert np.array_equal(found.final_keys, expected.final_keys[shuffled])


def test_groups_stay_apart_and_deeper_keys_are_those_of_the_leaders():
    """Each text is replaced by its leader in the group; a batch of these has the same keys."""
    for key in ("observation", "observation+action"):
        for seed in range(6):
            records = random_records(seed) | {"key": key}
            batch = StepBatch.from_records(history_length=2, **records)
            clustered = cluster_observations(batch, texts_of(batch), 0.5, key=key)
            text = texts_of(batch)
            records["observation"] = [text[key] for key in clustered.context_keys[:, 0].tolist()]
            records["final_observation"] = [text[key] for key in clustered.final_keys[:, 0].tolist()]
            expected = StepBatch.from_records(history_length=2, **records)
            assert np.array_equal(clustered.context_keys, expected.context_keys)
            assert np.array_equal(clustered.final_keys, expected.final_keys)
    apart = batch_of(["a lamp"], ["a desk"], group=["one", "other"])
    assert cluster_observations(apart, texts_of(apart), 0.5) is apart


def test_copies_of_a_step_are_one_visit():
    """Two branches share a step, so that its text has one visit, and the one first in the alphabet leads."""
    shared, other = "a lamp on the desk", "a cup on the desk"
    batch = batch_of([shared], [shared], [other], response=[0, 0, 1])
    assert len(set(cluster_observations(batch, texts_of(batch), 0.8).context_keys[:, 0].tolist())) == 1
    assert cluster_observations(batch, texts_of(batch), 0.8).context_keys[0, 0] == batch.context_keys[2, 0]


def test_wrong_arguments_are_named():
    batch = batch_of(["a lamp", "a desk"], ["a lamp"], action=["x", "y", "z"])
    unsigned = {hash_text(text): text for text in ("a lamp", "a desk")}
    merged = cluster_observations(batch, unsigned, 0.5)
    assert merged.context_keys[0, 0] == merged.context_keys[1, 0]
    for arguments, message in [
        ({"threshold": 1.5}, "similarity=1.5: choose a share from 0 to 1"),
        ({"kind": "wrods"}, "Did you mean 'words'"),
        ({"order": "row"}, "Did you mean 'rows'"),
        ({"texts": {}}, "texts lacks the key .* 1 others of 2"),
        ({"key": KeyFunction(lambda text, _: text, with_action=True)}, "not chained by key="),
    ]:
        with pytest.raises(ValueError, match=message):
            cluster_observations(**{"batch": batch, "texts": unsigned, "threshold": 0.5} | arguments)
