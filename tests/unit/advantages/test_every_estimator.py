"""Promises of every registered estimator, on random batches."""

import re
from dataclasses import replace

import numpy as np
import pytest

from hgpo_gym.advantages import ESTIMATORS, StepBatch, assign, estimate, is_over_the_batch, needed_by
from tests.support.step_batches import random_batch, random_records, with_neutral_columns

SEEDS = range(12)
BATCHES = [random_batch(seed) for seed in range(13)]
VARIANTS: dict[str, list[dict]] = {
    "crbc": [{"depth": 2}, {"beta": 1.0, "level": 1}, {"time_aware": True}],
    "graft": [{"gamma": 1.0}, {"level": 2}, {"time_aware": True}],
    "ecpo": [{"norm": "mean_norm", "evidence": 0.0}, {"time_aware": True}],
    "graphhca": [{"absorb_final": True}, {"level": 1, "time_aware": True}],
    "state_scores": [{"alpha": 1.0, "norm": "mean_std_norm"}, {"level": 1, "time_aware": True}],
    "proxmo": [{"temperature": 0.01}, {"norm": "mean_std_norm", "episode_statistics": "trajectories"}],
    "pgpo": [{"leave_one_out": True}, {"w_group": 1.0, "time_aware": True}],
    "graphgpo": [{"normalize_distance": True, "omega": 0.8}, {"time_aware": True}],
    "hiper_hae": [{"part": "low"}, {"part": "high", "bootstrap_truncated": True}],
    "g2po": [{"time_aware": True}],
    "gagpo": [{"norm": "mean_norm", "level": 1}, {"time_aware": True}],
    "nested_bellman": [
        {"norm": "mean_norm", "prior_visits": 0.0},
        {"history_length": 0, "td_weight": 1.0},
        {"episode_weight": 1.0},
        {"episode_weight": 1.0, "episode_statistics": "steps"},
        {"time_aware": True},
    ],
    "rtmc": [{"norm": "mean_std_norm"}, {"time_aware": True}],
    "salt": [{"time_aware": True}, {"base": "hgpo"}, {"base": "crbc", "base_options": {"depth": 0}}],
    "turn_rewards": [{"joint": False}],
    "dr_mas": [{"statistics_of": 0}],
    "tree_grpo": [{"advantage_of_a_leaf": "tree_2norm"}, {"advantage_of_a_leaf": "tree_inner"}],
    "pass_at_k": [{"norm": "mean_norm"}],
    "gbpo": [{"norm": "mean_norm", "temperature": 1e-4}],
}
CASES = [(name, options) for name in ESTIMATORS for options in [{}, *VARIANTS.get(name, [])]]
COMPARED_IN_THE_GROUP = [(name, options) for name, options in CASES if not is_over_the_batch(ESTIMATORS[name])]
# Steps of one episode are compared with one another there, so equal episodes leave differences.
COMPARE_STEPS_OF_AN_EPISODE = {"reinforce_pp", "g2po", "gae", "hiper_hae", "turn_rewards", "empg", "proxmo"}


@pytest.mark.promise("Advantages are finite, whatever the order of rows.")
def test_advantages_are_finite_and_rows_may_come_in_any_order(subtests):
    for name, options in CASES:
        with subtests.test(f"{name} {options}"):
            for seed in SEEDS:
                batch = BATCHES[seed]
                straight = assign(name, batch, **options)  # raises where a number is not finite
                order = np.random.default_rng(seed).permutation(len(batch))
                mixed = assign(name, batch.take(order), **options)
                np.testing.assert_allclose(mixed.values, straight.values[order], rtol=0, atol=1e-9, err_msg=str(seed))
                for extra, values in straight.extras.items():
                    np.testing.assert_allclose(mixed.extras[extra], values[order], rtol=0, atol=1e-9)


def test_batches_merged_or_apart_get_the_same(subtests):
    for name, options in COMPARED_IN_THE_GROUP:
        with subtests.test(f"{name} {options}"):
            for seed in SEEDS:
                batch = BATCHES[seed]
                numbers = np.unique(batch.group)
                groups = [np.flatnonzero(batch.group == number) for number in numbers]
                together = estimate(name, batch, **options)
                for rows in groups:
                    alone = estimate(name, batch.take(rows), **options)
                    np.testing.assert_allclose(alone, together[rows], rtol=0, atol=1e-9, err_msg=str(seed))
                merged = StepBatch.concatenate([batch, BATCHES[seed + 1]])
                np.testing.assert_allclose(estimate(name, merged, **options)[: len(batch)], together, rtol=0, atol=1e-9)


def test_those_that_look_over_the_batch_are_marked():
    """The test above would fail with the marked ones, which depend on other groups."""
    for name in ESTIMATORS:
        if is_over_the_batch(ESTIMATORS[name]):
            changed = 0
            for seed in SEEDS:
                batch = BATCHES[seed]
                rows = np.flatnonzero(batch.group == batch.group[0])
                apart = estimate(name, batch.take(rows)) - estimate(name, batch)[rows]
                changed += np.abs(apart).max() > 1e-6
            assert changed > 0, name


def test_rounding_is_no_credit(subtests):
    """Every reward wrong by a rounding error: nothing moves by more than that is worth."""
    for name, options in CASES:
        with subtests.test(f"{name} {options}"):
            for seed in SEEDS:
                batch = BATCHES[seed]
                noise = np.random.default_rng(seed).choice([-1.0, 0.0, 1.0], size=len(batch))
                rounded = replace(batch, reward=batch.reward * (1 + 2e-16 * noise))
                difference = estimate(name, rounded, **options) - estimate(name, batch, **options)
                assert np.abs(difference).max() < 1e-7, seed


@pytest.mark.promise("Episodes that do not differ teach nothing.")
def test_equal_episodes_carry_exactly_no_signal(subtests):
    """The same return from different rewards, 0.1 + 0.2, 0.2 + 0.1 and 0.3 + 0: equal but for rounding."""
    for name, options in CASES:
        with subtests.test(f"{name} {options}"):
            columns = {
                "group": ["g"] * 8,
                "trajectory": np.repeat(np.arange(4), 2).tolist(),
                "step": [0, 1] * 4,
                "observation": ["x", "y"] * 4,
                "reward": [0.1, 0.2, 0.1 + 1e-17, 0.2, 0.1, 0.2, 0.1, 0.2 - 3e-17],
            }
            advantages = estimate(
                name, StepBatch.from_records(history_length=2, **with_neutral_columns(columns)), **options
            )
            if name in COMPARE_STEPS_OF_AN_EPISODE:
                np.testing.assert_allclose(advantages.reshape(4, 2), np.tile(advantages[:2], (4, 1)), atol=1e-9)
            else:
                assert (advantages == 0.0).all()


def test_a_batch_without_the_column_is_refused_by_name(subtests):
    for name in [name for name in ESTIMATORS if needed_by(ESTIMATORS[name])]:
        with subtests.test(name):
            records = random_records(0)
            for column in needed_by(ESTIMATORS[name]):
                without = {other: values for other, values in records.items() if other != column}
                batch = StepBatch.from_records(history_length=2, **without)
                with pytest.raises(ValueError, match=f"Estimator '{name}' needs the column '{column}'"):
                    estimate(name, replace(batch, texts=None) if column == "texts" else batch)


def test_the_others_need_rewards_and_keys_alone(subtests):
    for name in [name for name in ESTIMATORS if not needed_by(ESTIMATORS[name])]:
        with subtests.test(name):
            batch = BATCHES[0]
            fields = {
                field: getattr(batch, field) for field in ("group", "trajectory", "step", "reward", "context_keys")
            }
            assert np.isfinite(estimate(name, StepBatch(**fields, penalty=batch.penalty))).all()


def test_the_batch_is_left_as_it_was(subtests):
    for name in ESTIMATORS:
        with subtests.test(name):
            batch, before = random_batch(1), random_batch(1)
            estimate(name, batch)
            for column, values in batch._columns():
                np.testing.assert_array_equal(values, dict(before._columns())[column])


def test_its_docstring_names_source_and_family(subtests):
    for name in ESTIMATORS:
        with subtests.test(name):
            description = ESTIMATORS[name].__doc__
            assert "arXiv:" in description or name == "hgpo"
            assert re.search(r"Family:\s", description)
            if name not in ("grpo", "gigpo", "hgpo", "hgpo_gae", "nested_bellman", "best_plan"):
                assert re.search(r"Source:\s+(code|paper|third\s+party)", description)


BY_STEPS = {
    **{
        name: {}
        for name in ("hgpo", "hgpo_gae", "nested_bellman", "rtmc", "gagpo", "graft", "state_scores", "turn_rewards")
    },
    **{
        name: {"w_group": 0.0} for name in ("crbc", "ecpo", "g2po", "graphgpo", "graphhca", "beacon", "proxmo", "rlvmr")
    },
    "pgpo": {"alpha": 0.0},
}
"""Estimators, and options with which they compare steps alone."""


def test_where_steps_are_compared_an_episode_whose_steps_are_all_anothers_changes_nothing(subtests):
    """Copies of a step have the same `answer`, as those before a branch have."""
    for name in BY_STEPS:
        with subtests.test(name):
            different = 0
            for seed in SEEDS:
                batch = BATCHES[seed]
                batch = replace(batch, extras={**batch.extras, "response": np.arange(len(batch))})
                lengths = np.bincount(batch.trajectory_labels)
                again = np.flatnonzero(batch.trajectory_labels == lengths.argmax())
                copied = StepBatch.concatenate([batch, batch.take(again)])
                group = np.concatenate([batch.group, batch.group[again]])
                response = np.concatenate([batch.extras["response"], batch.extras["response"][again]])
                twice = replace(copied, group=group, extras={**copied.extras, "response": response})
                once = estimate(name, batch, **BY_STEPS[name])
                expected = np.concatenate([once, once[again]])
                np.testing.assert_allclose(
                    estimate(name, twice, **BY_STEPS[name]), expected, rtol=0, atol=1e-9, err_msg=str(seed)
                )
                apart = replace(twice, extras={**twice.extras, "response": np.arange(len(twice))})
                different += not np.allclose(estimate(name, apart, **BY_STEPS[name]), expected, rtol=0, atol=1e-6)
            assert different > 5


def test_a_return_that_is_nothing_but_rounding_is_no_success(subtests):
    """0.1 + 0.6 - 0.7 is 0 in this order and 3e-17 in another; `success` is not recorded."""
    for name in ["crbc", "graft", "graphgpo", "graphhca", "nested_bellman", "g2po"]:
        with subtests.test(name):
            records = {
                "group": [0] * 4, "trajectory": [0, 0, 0, 1], "step": [0, 1, 2, 0], "observation": ["s", "t", "s", "s"],
                "reward": [0.1, 0.6, -0.7, 0.0], "action": ["a", "b", "a", "b"],
            }  # fmt: skip
            batch = StepBatch.from_records(history_length=2, **with_neutral_columns(records))
            assert batch.success is None
            for order in ([0, 1, 2, 3], [2, 1, 0, 3]):  # of rows: returns are summed as they come
                np.testing.assert_allclose(estimate(name, batch.take(np.array(order))), 0.0, atol=1e-9)


def test_the_base_group_weighs_alike_on_all_steps_of_a_task(subtests):
    """Equal returns, three penalties of which one is the mean: its step has no episode term, and yet that level."""
    for episode_statistics in ["steps", "trajectories"]:
        with subtests.test(f"{episode_statistics}"):
            batch = StepBatch.from_records(
                group=[0] * 4, trajectory=[0, 0, 0, 1], step=[0, 1, 2, 0], observation=["s", "t", "s", "s"],
                reward=[0.0, 0.0, 10.0, 10.0], penalty=[0.0, 0.3, 0.1, 0.0], history_length=0,
            )  # fmt: skip
            options = {"norm": "mean_norm", "gamma": 0.5}
            level = estimate("hgpo", batch, **options)
            episode = estimate("grpo", batch, norm="mean_norm", episode_statistics=episode_statistics)
            found = estimate("hgpo", batch, base_group=True, episode_statistics=episode_statistics, **options)
            np.testing.assert_allclose(found[[0, 2, 3]], ((level + episode) / 2)[[0, 2, 3]], atol=1e-5)
            assert found[1] == pytest.approx(episode[1], abs=1e-5)  # alone with its observation
