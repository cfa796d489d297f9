"""Metrics: every number that a run writes is explained, and the line of an iteration says which number it shows."""

import importlib.util

import numpy as np
import pytest

from hgpo_gym.rollouts.metrics import credit_metrics, describe_iteration
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.runs.metric_table import METRICS
from tests.integration.trainers.test_training import SMALL
from tests.support.small_runs import train
from tests.support.step_batches import random_batch

pytestmark = pytest.mark.slow  # some runs of each kind

SB3 = ["algo.features.actions=4", "trainer.iterations=1", "rollout.num_tasks=4", "rollout.group_size=4"]
TINY = ["model=tiny", *SMALL]
RUNS = {
    "a table": ["algo=gigpo", "env.sections=1"],
    "a pre-pass": ["model=tiny", *SMALL, "objective=capo", "objective.learning_rate=0.1"],
    "a critic": ["algo=gae", "env.sections=1"],
    "plans": ["model=tiny", *SMALL, "algo=hiper_hae", "prompt=plan", "rollout.max_new_tokens=64"],
    "groups played anew": ["sampler=dynamic"],
    "a language model": [
        *TINY, "correction=token", "trainer.off_policy_limit=0.5", "rollout.staleness=1", "rollout.overlap=true",
    ],
    "an untrained one": [*TINY, "warmstart.source=none", "engine.constrain=none", "trainer.kl_coef=0", "memory=notes"],
    "long prompts": [*TINY, "engine.max_prompt_tokens=40", "warmstart.source=none", "memory.window=4"],
    "sb3_ppo": ["algo=sb3_ppo", *SB3, "algo.batch_size=32"],
    "sb3_dqn": ["algo=sb3_dqn", *SB3, "algo.learning_starts=10"],
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The metrics of short runs of many settings, by their name."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name, overrides in RUNS.items():
            if name.startswith("sb3") and importlib.util.find_spec("stable_baselines3") is None:
                continue
            path = tmp_path_factory.mktemp("run")
            train(path, *overrides, "trainer.iterations=2", "evaluation.every=1")
            found[name] = read_metrics(path)
    return found


def test_every_metric_that_a_run_writes_is_explained(written):
    names = {metric for lines in written.values() for line in lines for metric in line}
    assert names - METRICS.keys() == set(), "hgpo_gym/runs/metric_table.py does not explain these"


def test_every_metric_that_is_explained_is_written(written):
    if importlib.util.find_spec("stable_baselines3") is None:
        pytest.skip("some are of Stable-Baselines3's algorithms")
    assert METRICS.keys() - {metric for lines in written.values() for line in lines for metric in line} == set()


def test_every_metric_has_a_title_a_unit_and_a_sentence():
    for name, metric in METRICS.items():
        assert metric.title, name
        assert metric.unit, name
        assert metric.meaning.endswith("."), name
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


def test_responses_that_reach_the_longest_length_count_as_cut_off(written):
    """An untrained model that may say anything mostly does not end by itself, one that is held to actions does."""
    line = written["an untrained one"][0]
    assert line["truncated_fraction"] > 0.5
    assert 1 < line["response_tokens"] <= 32
    assert written["a language model"][0]["truncated_fraction"] == 0


def test_lengths_and_cut_prompts_are_recorded(written):
    line = written["an untrained one"][0]
    assert line["response_tokens"] < line["response_tokens_max"] == 32
    assert line["prompt_tokens"] < line["prompt_tokens_max"]
    assert line["prompt_cut_share"] == 0
    cut = written["long prompts"][0]
    assert 30 < cut["prompt_tokens_max"] <= 40
    assert 0 < cut["prompt_cut_share"] < 1


def test_the_speed_is_that_of_all_tokens(written):
    line = written["an untrained one"][0]
    seconds = sum(line[f"seconds_{part}"] for part in ("rollout", "advantage", "update"))
    tokens = line["steps"] * (line["prompt_tokens"] + line["response_tokens"])
    assert line["tokens_per_second"] * seconds == pytest.approx(tokens)
    assert line["memory_gib"] > 0.1


def test_the_rate_of_the_last_optimiser_step_is_recorded(written):
    """It rises to 5e-4 over 20 steps."""
    line = written["a language model"][0]
    steps = round(line["learning_rate"] / (5e-4 / 20))
    assert 1 <= steps <= 20
    assert line["learning_rate"] == pytest.approx(steps * 5e-4 / 20)


def test_a_zero_variance_group_has_no_step_with_an_advantage():
    batch = random_batch(3)
    groups = batch.group_labels
    count = groups.max() + 1
    assert count > 1
    assert credit_metrics(batch, np.zeros(len(batch)))["zero_variance_groups"] == 1
    assert credit_metrics(batch, np.ones(len(batch)))["zero_variance_groups"] == 0
    alone = np.zeros(len(batch))
    alone[np.flatnonzero(groups == 0)[0]] = -0.5
    assert credit_metrics(batch, alone)["zero_variance_groups"] == pytest.approx(1 - 1 / count)


def test_two_kinds_of_kl_have_two_names(written):
    """Not one label for whichever there is: with a KL loss the line has shown another number."""
    with_reference, without = (written[name][0] for name in ("a language model", "a table"))
    line = describe_iteration(with_reference, 2)
    assert f"KL {with_reference['kl_behaviour']:.4f}" in line
    assert f"KL to reference {with_reference['kl_reference']:.4f}" in line
    line = describe_iteration(without, 2)
    assert f"KL {without['kl_behaviour']:.4f}" in line
    assert "reference" not in line
    assert "KL 1.3e+28 " in describe_iteration({**without, "kl_behaviour": 12548730671346429003686739968.0}, 2)
