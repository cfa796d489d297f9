"""Estimators of credit against independently computed values, and what each of them promises."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, assign, estimate
from hgpo_gym.advantages.process import Chain, transitions
from hgpo_gym.advantages.statistics import EPISODE_STATISTICS, episode_returns
from tests.support import golden
from tests.support.step_batches import random_batch, random_records, with_neutral_columns

NOT_COLUMNS = ("name", "gamma", "discounted_return", "intermediate", "expected")
SEEDS = range(12)


def episodes(*seen: str, rewards=(), **columns) -> StepBatch:
    """A group; an episode for each word, its letters are the observations, the last reward as given, actions alike."""
    count = sum(map(len, seen))
    rewards = list(rewards) or [0.0] * len(seen)
    records = {
        "group": ["task"] * count,
        "trajectory": [number for number, word in enumerate(seen) for _ in word],
        "step": [step for word in seen for step in range(len(word))],
        "observation": list("".join(seen)),
        "reward": [
            reward if step == len(word) - 1 else 0.0
            for word, reward in zip(seen, rewards, strict=True)
            for step in range(len(word))
        ],
    }
    return StepBatch.from_records(history_length=2, **with_neutral_columns(records) | columns)


@pytest.mark.promise("Estimators of credit have the values computed apart from this package.")
def test_golden_credit(subtests):
    for case in golden.load("credit"):
        with subtests.test(case.get("name", str(case))):
            columns = {name: values for name, values in case.items() if name not in NOT_COLUMNS}
            batch = StepBatch.from_records(history_length=3, **columns)
            for expected in case["expected"]:
                options = {name: value for name, value in expected.items() if name not in ("estimator", "advantage")}
                advantages = estimate(expected["estimator"], batch, **options)
                described = f"{expected['estimator']} {options}"
                np.testing.assert_allclose(advantages, expected["advantage"], rtol=0, atol=1e-8, err_msg=described)
            between = case["intermediate"]
            chain = Chain.of(batch, level=0)
            np.testing.assert_allclose(chain.values(0.98)[chain.state], between["bellman_value"], rtol=0, atol=1e-8)
            np.testing.assert_allclose(episode_returns(batch), between["episode_return"], rtol=0, atol=1e-8)


def test_golden_credit_more(subtests):
    for case in golden.load("credit_more"):
        columns = {name: values for name, values in case.items() if name not in NOT_COLUMNS}
        batch = StepBatch.from_records(history_length=3, **columns)
        for expected in case["expected"]:
            options = {name: value for name, value in expected.items() if name not in ("estimator", "advantage")}
            if "clusters" not in options:
                with subtests.test(f"{case['name']}: {expected['estimator']} {options}"):
                    found = estimate(expected["estimator"], batch, **options)
                    np.testing.assert_allclose(found, expected["advantage"], rtol=0, atol=1e-8)


def single_steps(returns, **columns) -> StepBatch:
    """Episodes of one step each, in one group unless `group` is given."""
    count = len(returns)
    records: dict[str, Any] = {
        "group": [0] * count, "trajectory": list(range(count)), "step": [0] * count, "observation": ["x"] * count,
    }  # fmt: skip
    return StepBatch.from_records(history_length=0, reward=returns, **records | columns)


def test_golden_tree_grpo(subtests):
    for case in golden.load("objectives")["samplers"]["tree_grpo"]:
        with subtests.test(case.get("name", str(case))):
            batch = single_steps(case["returns"], group=case["tasks"], tree=case["trees"])
            found = estimate("tree_grpo", batch, advantage_of_a_leaf=case["advantage_of_a_leaf"])
            np.testing.assert_allclose(found, case["advantage"], rtol=0, atol=1e-8)


def test_golden_gbpo(subtests):
    for case in golden.load("objectives")["samplers"]["gbpo_signals"]:
        with subtests.test(case.get("name", str(case))):
            found = assign("gbpo", single_steps(case["returns"]), norm=case["norm"], temperature=case["temperature"])
            np.testing.assert_allclose(found.values, case["advantage"], rtol=0, atol=1e-8)
            np.testing.assert_allclose(found.extras["target"], case["target"], rtol=0, atol=1e-8)


def test_states_of_short_histories_count_whole():
    batch = episodes("ab", "ab", "cab", "b")
    state, successor, last = transitions(batch, level=1)
    assert state[0] == state[2]  # a at the start
    assert state[1] == state[3] == state[6]  # b after a
    assert len({state[0], state[1], state[4], state[5], state[7]}) == 5  # a after c is no a at the start, nor is b
    assert successor.tolist() == [state[1], -1, state[3], -1, state[5], state[6], -1, -1]
    assert last.tolist() == [False, True, False, True, False, False, True, True]
    plain = transitions(batch, level=0).state
    assert plain[0] == plain[5]


def test_the_state_of_a_final_observation_is_that_of_a_step():
    """The second episode ends in b, where the first was after a."""
    batch = episodes("ab", "a", final_observation=["done", "done", "b"])
    for level in (0, 1, 2):
        moves = transitions(batch, level)
        assert moves.successor[2] == moves.state[1]
        assert moves.successor[1] not in moves.state
    unknown = episodes("ab", "a", final_observation=[None, None, "b"])
    assert transitions(unknown, 0).successor[1] == -1


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        *(
            (name, "level")
            for name in ("crbc", "ecpo", "g2po", "gagpo", "graft", "graphgpo", "graphhca", "pgpo", "rtmc", "salt")
        ),
        ("nested_bellman", "history_length"),
    ],
)
def test_time_aware_states_are_those_of_observations_that_count_the_steps(name, depth):
    differ = False
    for seed in SEEDS:
        records = random_records(seed)
        seen, step, trajectory, final = (
            records[key] for key in ("observation", "step", "trajectory", "final_observation")
        )
        length = Counter(trajectory)
        counted = records | {
            "observation": [f"{text} at {at}" for text, at in zip(seen, step, strict=True)],
            "final_observation": [f"{text} at {length[index]}" for text, index in zip(final, trajectory, strict=True)],
        }
        plain, counting = (StepBatch.from_records(**columns, history_length=2) for columns in (records, counted))
        for level in (0, 1, 2):
            aware = estimate(name, plain, time_aware=True, **{depth: level})
            np.testing.assert_allclose(aware, estimate(name, counting, **{depth: level}), rtol=0, atol=1e-12)
            differ |= not np.allclose(aware, estimate(name, plain, **{depth: level}))
    assert differ


def test_where_several_response_in_a_turn_time_is_turns():
    for seed in SEEDS:
        records = random_records(seed)
        turn = [step // 2 for step in records["step"]]
        length = Counter(records["trajectory"])
        ends = [(length[index] - 1) // 2 + 1 for index in records["trajectory"]]
        counted = records | {
            "observation": [f"{text} at {at}" for text, at in zip(records["observation"], turn, strict=True)],
            "final_observation": [
                f"{text} at {at}" for text, at in zip(records["final_observation"], ends, strict=True)
            ],
        }
        aware = estimate("crbc", StepBatch.from_records(**records, turn=turn, history_length=0), time_aware=True)
        expected = estimate("crbc", StepBatch.from_records(**counted, history_length=0))
        np.testing.assert_allclose(aware, expected, rtol=0, atol=1e-12)


def test_in_time_aware_states_a_step_pays_for_the_time_it_takes():
    """Door a leads out, door b back to the same hall; the limit is two steps."""
    doors = ["ba", "bb", "a", "bb"]
    batch = episodes(
        *("h" * len(word) for word in doors),
        rewards=[10, 0, 10, 0],
        action=list("".join(doors)),
        final_observation=["out" if word[-1] == "a" else "h" for word in doors for _ in word],
    )
    early = [0, 2, 4, 5]
    plain, aware = (Chain.of(batch, 0, time_aware).values(1.0)[:-2] for time_aware in (False, True))
    np.testing.assert_allclose(plain, [1 / 2])  # 2/7 + 3/7 V
    np.testing.assert_allclose(np.sort(aware), [1 / 3, 1 / 2])  # late, and early 1/4 + 3/4 of late
    b, _, a, _ = np.split(estimate("graft", batch, gamma=1.0)[early], 4)
    assert b == 0.0 < a
    b, _, a, _ = np.split(estimate("graft", batch, gamma=1.0, time_aware=True)[early], 4)
    assert b < 0.0 < a


@pytest.mark.parametrize("name", ["crbc", "ecpo", "graft", "graphgpo", "graphhca", "g2po", "pgpo"])
def test_where_every_episode_fails_alike_there_is_no_step_term(name):
    for seed in SEEDS:
        batch = random_batch(seed)
        lost = replace(batch, reward=np.zeros(len(batch)), penalty=np.zeros(len(batch)), success=None)
        assert (estimate(name, lost) == 0.0).all()


def test_credit_of_a_state_sums_to_nothing():
    for seed in SEEDS:
        batch = random_batch(seed)
        chain = Chain.of(batch, level=0)
        credit = estimate("crbc", batch, w_group=0.0, sigma_min=1e9)
        np.testing.assert_allclose(np.bincount(chain.state, weights=credit), 0.0, atol=1e-15)
        for gamma in (0.9, 1.0):
            values = chain.values(gamma)
            residual = gamma * values[chain.following] - values[chain.state]
            np.testing.assert_allclose(np.bincount(chain.state, weights=residual), 0.0, atol=1e-12)


@pytest.mark.parametrize("discount", [0.98, 1.0])
@pytest.mark.parametrize("places", [20, 300, 1500])
def test_values_solve_their_equation_however_many_states_there_are(places, discount):
    """128 episodes of 50 steps on a ring: with few places solved by elimination, with many by iteration."""
    generator = np.random.default_rng(places)
    walks = generator.integers(places, size=(128, 1)) + np.cumsum(generator.choice([-1, 1], size=(128, 50)), axis=1)
    won = generator.random(128) < 0.5
    batch = StepBatch(
        group=np.zeros(6400, dtype=np.int64),
        trajectory=np.repeat(np.arange(128), 50),
        step=np.tile(np.arange(50), 128),
        reward=(won[:, None] * (np.arange(50) == 49)).astype(np.float64).ravel(),
        context_keys=1 + (walks % places).reshape(-1, 1),
        penalty=np.zeros(6400),
    )
    chain = Chain.of(batch, level=0)
    values = chain.values(discount)
    count = len(chain.group)
    assert count == len(np.unique(batch.context_keys))
    assert values[count:].tolist() == [1.0, 0.0]
    backed_up = np.bincount(chain.state, weights=discount * values[chain.following]) / np.bincount(chain.state)
    np.testing.assert_allclose(values[:count], backed_up, rtol=0, atol=1e-13)
    assert values[:count].min() >= -1e-12
    assert values[:count].max() <= 1 + 1e-12


def large(seed: int) -> StepBatch:
    """A random batch with rewards and penalties so large that the 1e-6 beside deviations does not show."""
    batch = random_batch(seed)
    return replace(batch, reward=1e6 * batch.reward, penalty=1e6 * batch.penalty)


def test_ecpo_lies_between_grpo_and_gigpo():
    """Shrunk to nothing it is GRPO; with every action tried once and no shrinkage it is GiGPO."""
    for seed in SEEDS:
        batch = large(seed)
        grpo = estimate("grpo", batch)
        np.testing.assert_array_equal(estimate("ecpo", batch, w_step=0.0), grpo)
        np.testing.assert_allclose(estimate("ecpo", batch, shrinkage=1e12), grpo, atol=1e-6)
        same = replace(batch, action=np.zeros(len(batch), dtype=np.int64))
        np.testing.assert_allclose(estimate("ecpo", same), grpo, atol=1e-9)
        once = replace(batch, action=np.arange(len(batch)))
        gigpo = estimate("gigpo", once)
        np.testing.assert_allclose(estimate("ecpo", once, shrinkage=0.0, evidence=0.0), gigpo, atol=1e-6)


def test_nested_bellman_in_one_state_by_hand():
    """In x, u led to 10 and 0, v to nothing: means of 5 and 0 around 10 / 3."""
    batch = episodes("x", "x", "x", rewards=[10, 0, 0], action=["u", "u", "v"])
    found = partial(estimate, "nested_bellman", batch, norm="mean_norm")
    np.testing.assert_allclose(found(td_weight=0.0), [5 / 3, 5 / 3, -10 / 3])
    np.testing.assert_allclose(found(td_weight=1.0), [20 / 3, -10 / 3, -10 / 3])
    np.testing.assert_allclose(found(), [35 / 12, 5 / 12, -10 / 3])


def test_nested_bellman_tells_aliased_halls_apart_as_far_as_visits_go():
    """After r the action u succeeds in the hall, after b the action v. Two visits each weigh 1 / (1 + prior_visits)."""
    batch = episodes(
        "rh", "rh", "bh", "bh", rewards=[10, 0, 10, 0], action=["on", "u", "on", "v", "on", "v", "on", "u"]
    )
    found = partial(estimate, "nested_bellman", batch, norm="mean_norm", td_weight=0.0)
    halls = np.array([0, 1, 0, -1, 0, 1, 0, -1])
    np.testing.assert_array_equal(found(history_length=0), np.zeros(8))
    for prior, weight in ((0.0, 1.0), (1.0, 1 / 2), (3.0, 1 / 4)):
        np.testing.assert_allclose(found(history_length=1, prior_visits=prior), 5 * weight * halls, atol=1e-12)


def test_the_episodes_term_is_all_that_nested_bellman_has_where_nothing_comes_again():
    batch = episodes("ab", "cde", rewards=[10, 0], action=["u", "v", "u", "v", "u"], penalty=[0.5, 0, 0, 0, 0])
    for norm in ("mean_norm", "mean_std_norm"):
        found = partial(estimate, "nested_bellman", batch, norm=norm)
        np.testing.assert_array_equal(found(), [-0.5, 0, 0, 0, 0])
        for over in EPISODE_STATISTICS:
            term = estimate("grpo", batch, norm=norm, episode_statistics=over)
            np.testing.assert_allclose(found(episode_weight=0.5, episode_statistics=over) - found(), 0.5 * term)


def test_vineppo_leaves_steps_without_restarts_to_the_step_before():
    nothing = None
    values = [0.5, nothing, 0.8, nothing, nothing]
    batch = episodes("abcd", "a", rewards=[1, 0.25], value=values)
    # Steps b and d have no value: a is worth going on to 0.8, c ends with 1.
    np.testing.assert_allclose(estimate("vineppo", batch), [0.3, 0, 0.2, 0, 0])
    np.testing.assert_allclose(estimate("vineppo", batch, gamma=0.5), [0.5**2 * 0.8 - 0.5, 0, 0.5 - 0.8, 0, 0])


def test_dr_mas_by_the_statistics_of_one_role():
    """Role 0 speaks in both episodes, role 1 once: its return is measured by role 0's mean and deviation."""
    batch = episodes("xyz", "x", rewards=[4, 0], agent=[0, 1, 0, 0])
    by_role_0 = (np.array([4, 4, 4, 0]) - 8 / 3) / (np.std([4, 4, 0], ddof=1) + 1e-6)
    np.testing.assert_allclose(estimate("dr_mas", batch, statistics_of=0), by_role_0)
    np.testing.assert_allclose(estimate("dr_mas", batch), [*by_role_0[[0]], 4, *by_role_0[[2, 3]]])
    np.testing.assert_allclose(estimate("dr_mas", batch, statistics_of=1), [4, 4, 4, 0])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("crbc", {"sigma_min": 0.0}, r"sigma_min=0\.0: choose a number above 0"),
        ("crbc", {"depth": -1}, "depth=-1"),
        ("crbc", {"beta": 1.1}, r"beta=1\.1"),
        ("crbc", {"level": 3}, "levels 0 to 2"),
        ("graft", {"gamma": -0.1}, r"gamma=-0\.1"),
        ("graft", {"level": -1}, "levels 0 to 2"),
        ("graphgpo", {"omega": 0.0}, r"omega=0\.0"),
        ("ecpo", {"shrinkage": -1.0}, r"shrinkage=-1\.0: choose a number of 0 or more"),
        ("graphhca", {"floor": 0.0}, r"floor=0\.0: choose a number above 0"),
        ("state_scores", {"min_rate": 2.0}, r"min_rate=2\.0"),
        ("state_scores", {"novelty_decay": -1.0}, r"novelty_decay=-1\.0"),
        ("proxmo", {"temperature": 0.0}, r"temperature=0\.0: choose a number above 0"),
        ("proxmo", {"alpha": -1.0}, r"alpha=-1\.0: choose a number of 0 or more"),
        ("pgpo", {"alpha": -1.0}, r"alpha=-1\.0: choose a number of 0 or more"),
        ("gagpo", {"trace_decay": 2}, "trace_decay=2"),
        ("gae", {"trace_decay": 2}, "trace_decay=2"),
        ("gbpo", {"temperature": 0}, "temperature=0"),
        ("gbpo", {"norm": "std"}, "Unknown norm 'std'"),
        ("dr_mas", {"norm": "std"}, "Unknown norm 'std'"),
        ("pass_at_k", {"norm": "std"}, "Unknown norm 'std'"),
        ("hiper_hae", {"part": "middle"}, "Unknown part 'middle'"),
        ("hiper_hae", {"segment_decay": 2}, "segment_decay=2"),
        ("tree_grpo", {"advantage_of_a_leaf": "tre"}, "Did you mean 'tree'"),
        ("dvao", {"weights": [1.0]}, "3 rewards"),
        ("dvao", {"weights": [0.0, 0.0, 0.0]}, "a sum above 0"),
        ("gdpo", {"weights": [1.0, -1.0, 1.0]}, "0 or more each"),
        ("empg", {"k": -1}, "k=-1"),
        ("salt", {"base": "grop"}, "Did you mean 'grpo'"),
        ("progpo", {"base": "grpo", "base_options": {"nrom": "mean_norm"}}, "Did you mean 'norm'"),
        ("vineppo", {"gamma": 3}, "gamma=3"),
        ("nested_bellman", {"gamma": 0.0}, "gamma=0: choose a number above 0"),
        ("nested_bellman", {"td_weight": 1.5}, "td_weight=1.5: choose a number from 0 to 1"),
        ("nested_bellman", {"prior_visits": -1.0}, "prior_visits=-1.0: choose a number of 0 or more"),
        ("nested_bellman", {"episode_weight": -0.5}, "episode_weight=-0.5: choose a number of 0 or more"),
        ("nested_bellman", {"episode_statistics": "step"}, "Did you mean 'steps'?"),
        ("nested_bellman", {"history_length": 9}, "history_length=9: this batch has context keys for levels 0 to 2"),
    ],
)
def test_values_that_cannot_be_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        estimate(name, random_batch(0), **options)


def test_a_critic_values_every_step():
    batch = episodes("xy", value=[0.5, None])
    with pytest.raises(ValueError, match="row 1 has none"):
        estimate("gae", batch)


def test_the_step_limit_matters_where_it_is_asked_about():
    batch = random_batch(0)
    without = replace(batch, extras={name: values for name, values in batch.extras.items() if name != "truncated"})
    estimate("hiper_hae", without)
    with pytest.raises(ValueError, match="Estimator 'hiper_hae' needs the column 'truncated'"):
        estimate("hiper_hae", without, bootstrap_truncated=True)
