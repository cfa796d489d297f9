"""Every advantage against independently computed values, and the promises of the estimators."""

import numpy as np
import pytest

from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.advantages.batch import StepBatch
from tests.support import golden
from tests.support.step_batches import with_neutral_columns

COLUMNS = ("group", "trajectory", "step", "observation", "reward")


@pytest.mark.promise("Advantages have the values computed apart from this package.")
def test_golden_advantages():
    checked = 0
    for case in golden.load("advantages"):
        records = {column: case[column] for column in COLUMNS}
        for expected in case["expected"]:
            options = {name: value for name, value in expected.items() if name not in ("estimator", "advantage")}
            history_length = options.get("history_length", 2)
            batch = StepBatch.from_records(**records, history_length=history_length)
            if expected["estimator"] != "grpo":
                options["gamma"] = case["gamma"]
            advantages = estimate(expected["estimator"], batch, **options)
            np.testing.assert_allclose(advantages, expected["advantage"], rtol=0, atol=1e-8, err_msg=str(options))
            checked += len(advantages)
    assert checked > 40_000


def batch(history_length: int = 2, **columns) -> StepBatch:
    return StepBatch.from_records(history_length=history_length, **columns)


def two_episodes(**changes) -> dict:
    columns = {
        "group": ["g", "g", "g", "g"], "trajectory": ["a", "a", "b", "b"], "step": [0, 1, 0, 1],
        "observation": ["x", "y", "x", "z"], "reward": [0.0, 10.0, 0.0, 0.0],
    }  # fmt: skip
    return columns | changes


def test_hgpo_gae_leaves_out_the_luck_of_later_steps():
    """Both episodes pass y and b is luckier there: x is not credited with it, as far as lambda says."""
    columns = {
        "group": ["g"] * 4, "trajectory": ["a", "a", "b", "b"], "step": [0, 1] * 2, "observation": ["x", "y"] * 2,
        "reward": [1, 2, 0, 10],
    }  # fmt: skip
    records = batch(history_length=0, **columns)
    options = {"norm": "mean_norm", "gamma": 0.5}
    # Returns 2, 2 and 5, 10: HGPO's advantages are -1.5, -4 and 1.5, 4.
    for trace_decay, share in ((0, 1), (0.25, 0.75), (1, 0)):
        first = -1.5 + 0.5 * share * 4
        advantages = estimate("hgpo_gae", records, trace_decay=trace_decay, **options)
        np.testing.assert_allclose(advantages, [first, -4, -first, 4], rtol=2e-6)
    scaled = estimate("hgpo_gae", records, trace_decay=0, gamma=0.5)
    np.testing.assert_allclose(scaled, np.array([0.5, -4, -0.5, 4]) / np.sqrt(16.25 / 2), rtol=2e-6)


def test_hgpo_gae_with_full_traces_is_hgpo():
    generator = np.random.default_rng(0)
    length, episodes = 12, 24
    records = batch(
        group=np.repeat([0, 1, 2], 8 * length).tolist(),
        trajectory=np.repeat(np.arange(episodes), length).tolist(),
        step=np.tile(np.arange(length), episodes).tolist(),
        observation=generator.choice(list("uvwxyz"), size=episodes * length).tolist(),
        reward=generator.normal(size=episodes * length).tolist(),
        penalty=generator.choice([0.0, 0.1], size=episodes * length).tolist(),
    )
    full = estimate("hgpo_gae", records, norm="mean_norm", trace_decay=1.0)
    np.testing.assert_array_equal(full, estimate("hgpo", records, norm="mean_norm"))
    assert np.abs(estimate("hgpo_gae", records, norm="mean_norm") - full).max() > 0.1


def test_hgpo_gae_has_no_opinion_of_a_step_that_nobody_shares():
    """z is seen once; the steps around it are not blamed for its penalty either."""
    columns = two_episodes(observation=["x", "z", "x", "y"], penalty=[0, 0.5, 0, 0])
    plain = estimate("hgpo_gae", batch(**columns | {"penalty": [0.0] * 4}), norm="mean_norm")
    penalised = estimate("hgpo_gae", batch(**columns), norm="mean_norm")
    assert penalised[1] == plain[1] == 0
    np.testing.assert_allclose(penalised, plain)


def test_a_penalty_stays_at_its_step():
    plain, penalised = batch(**two_episodes()), batch(**two_episodes(penalty=[0, 0, 0.1, 0]))
    difference = estimate("grpo", penalised, norm="mean_norm") - estimate("grpo", plain, norm="mean_norm")
    np.testing.assert_allclose(difference, [0, 0, -0.1, 0], atol=1e-12)
    difference = estimate("hgpo", penalised, norm="mean_norm") - estimate("hgpo", plain, norm="mean_norm")
    np.testing.assert_allclose(difference, [0.05, 0, -0.05, 0], atol=1e-6)


def test_a_penalty_among_equal_returns_is_as_large_as_other_values(subtests):
    """If all episodes fail and one action is invalid, no estimator divides by almost zero."""
    for name in ESTIMATORS:
        with subtests.test(name):
            columns = two_episodes(reward=[0.0] * 4)
            columns = with_neutral_columns(columns)
            one = estimate(name, batch(**columns | {"penalty": [0.1, 0, 0, 0]}))
            assert one[0] < 0
            assert one[0] == one.min()
            assert np.abs(one).max() <= 2 * np.sqrt(4)
            every = estimate(name, batch(**columns | {"penalty": [0.1] * 4}))
            assert (np.abs(every) <= 1).all()


def test_a_penalty_among_equal_returns_by_hand():
    columns = two_episodes(reward=[0.0] * 4)
    np.testing.assert_allclose(
        estimate("grpo", batch(**columns | {"penalty": [0.1, 0, 0, 0]})), [-2, 0, 0, 0], rtol=1e-4
    )
    np.testing.assert_allclose(estimate("grpo", batch(**columns | {"penalty": [0.1] * 4})), [-1] * 4, rtol=1e-4)


def test_a_group_of_one_episode_keeps_its_return():
    columns = {"group": ["g"], "trajectory": ["a"], "step": [0], "observation": ["x"], "reward": [7.0]}
    assert estimate("grpo", batch(**columns)).tolist() == [7.0]
    assert estimate("hgpo", batch(**columns)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hpgo", {}, "Unknown estimator 'hpgo'. Did you mean 'hgpo'?"),
        ("grpo", {"gamma": 0.9}, "Unknown option of grpo 'gamma'"),
        ("gigpo", {"norm": "std"}, "Unknown norm 'std'"),
        ("grpo", {"episode_gamma": 1.5}, "episode_gamma=1.5"),
        ("gigpo", {"gamma": 1.5}, "gamma=1.5"),
        ("hgpo", {"weights": "papr"}, "Did you mean 'paper'?"),
        ("hgpo", {"history_length": 3}, "context keys for levels 0 to 2"),
        ("grpo", {"episode_statistics": "step"}, "Did you mean 'steps'?"),
        ("hgpo_gae", {"trace_decay": 1.5}, "trace_decay=1.5"),
        ("hgpo_gae", {"norm": "std"}, "Unknown norm 'std'"),
    ],
)
def test_unknown_names_and_values_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        estimate(name, batch(**two_episodes()), **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": [0.0]}, "reward has 1 entries, group has 4"),
        ({"step": [0, 2, 0, 1]}, "has step 2 where step 1 should be"),
        ({"step": [0, 0, 0, 1]}, "has step 0 where step 1 should be"),
        ({"group": ["g", "h", "g", "g"]}, "lies in more than one group"),
        ({"key": "observation+action"}, "pass action="),
    ],
)
def test_records_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        batch(**two_episodes(**changes))


def test_an_empty_batch_has_no_advantages():
    empty = batch(**with_neutral_columns({"group": [], "trajectory": [], "step": [], "observation": [], "reward": []}))
    for name in ESTIMATORS:
        assert estimate(name, empty).shape == (0,)
