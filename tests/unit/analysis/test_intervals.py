"""Intervals and tests of significance: values by hand, coverage, and the sentence that a report makes of them."""

from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pytest

from hgpo_gym.analysis.report import figures, intervals
from hgpo_gym.analysis.report.contests import Contest, contests_of, who_is_better
from hgpo_gym.analysis.report.load import Comparison


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end():
    assert intervals.interquartile_mean(np.array([7, 100, 1, 2, 6, 3, 5, 4])) == (3 + 4 + 5 + 6) / 4
    assert intervals.interquartile_mean(np.array([1, 2, 3, 4, 90])) == 3
    assert intervals.interquartile_mean(np.array([1, 2, 9])) == 4
    two = intervals.interquartile_mean(np.array([[0, 1, 1, 8], [0, 2, 4, 8]]))
    np.testing.assert_array_equal(two, [1, 3])


def test_the_probability_of_improvement_counts_ties_half():
    scores, others = np.array([1, 2, 3]), np.array([2, 2.5])
    assert intervals.probability_of_improvement(scores, others) == (0.5 + 2) / 6
    assert intervals.probability_of_improvement(others, scores) == 3.5 / 6


def test_the_bootstrap_resamples_each_stratum_separately():
    """Two strata without spread inside: pooled, they would vary."""
    apart = intervals.typical_of_strata([np.array([0.0, 0.0]), np.array([1.0, 1.0])])
    assert (apart.value, apart.low, apart.high) == (0.5, 0.5, 0.5)
    assert apart.no_spread
    pooled = intervals.typical([0.0, 0.0, 1.0, 1.0])
    assert (pooled.value, pooled.low, pooled.high) == (0.5, 0.0, 1.0)


def test_a_bootstrap_interval_is_that_of_all_resamples():
    """Three runs have 27 resamples, ten of which have different means; the quantiles are exact from 27."""
    values = np.array([0.0, 1.0, 5.0])
    everything = np.sort([np.mean([a, b, c]) for a in values for b in values for c in values])
    estimate = intervals.typical(values)
    assert estimate.value == 2
    assert (estimate.low, estimate.high) == (everything[0], everything[-1])
    assert intervals.typical(values) == intervals.typical(values)


def test_the_interval_of_a_mean_is_students():
    """The worked example of his paper (The Probable Error of a Mean, Biometrika 1908): hours of sleep that ten patients
    gained by a drug more than by another, 1.58 with a deviation of 1.23; t is 2.262 with nine degrees of freedom."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    estimate = intervals.mean(gained)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1.58, 0.700, 2.460), abs=0.001)
    same = intervals.mean([0.1 + 0.2] * 7)
    assert same.low == same.value == same.high
    assert same.no_spread
    assert intervals.mean([0.5]).low is None


def test_one_run_has_no_interval():
    estimate = intervals.typical([0.7])
    assert (estimate.value, estimate.low, estimate.high, estimate.runs) == (0.7, None, None, 1)
    assert intervals.improvement([0.7], [0.1, 0.2]).low is None


@pytest.mark.promise("Intervals of a report hold the truth as often as it says.")
@pytest.mark.parametrize(("runs", "coverage"), [(3, 0.76), (5, 0.90), (10, 0.93), (20, 0.95)])
def test_intervals_hold_the_truth_as_often_as_the_report_says(runs, coverage):
    random = np.random.default_rng(7)
    samples = random.normal(size=(600, runs))
    for kind, expected in ((intervals.typical, coverage), (intervals.mean, 0.95)):
        estimates = [kind(sample) for sample in samples]
        assert np.mean([one.low <= 0 <= one.high for one in estimates]) == pytest.approx(expected, abs=0.03)


def test_the_permutation_test_is_that_of_all_ways_to_split_the_runs():
    scores, others = [0.3, 0.5, 0.9], [0.1, 0.3, 0.2, 0.4]
    pooled = np.array(scores + others)

    def imbalance(first):
        second = [index for index in range(7) if index not in first]
        return abs(intervals.probability_of_improvement(pooled[list(first)], pooled[second]) - 0.5)

    splits = [imbalance(first) for first in combinations(range(7), 3)]
    exact = np.mean([value >= imbalance((0, 1, 2)) - 1e-9 for value in splits])
    assert intervals.permutation_p_value(scores, others) == pytest.approx(exact, abs=0.015)
    assert intervals.permutation_p_value([2, 3], [0, 1]) == pytest.approx(1 / 3, abs=0.015)
    assert intervals.permutation_p_value([1, 1], [1, 1]) == 1


def test_signs_of_differences_are_flipped_in_all_ways():
    differences = [0.3, 0.1, -0.2, 0.4]
    flipped = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=4)
    ]
    assert intervals.sign_flip_p_value(differences) == np.mean([one >= 0.6 - 1e-9 for one in flipped])
    assert intervals.sign_flip_p_value([0.1] * 6) == 2 / 2**6
    for even in ([0.1, -0.1], [0.1, 0.2, -0.3], [0, 0]):
        assert intervals.sign_flip_p_value(even) == 1
    drawn = np.random.default_rng(3).normal(0.5, size=13)
    exact = intervals.sign_flip_p_value(drawn)
    assert intervals.sign_flip_p_value([*drawn, *np.zeros(3)]) == pytest.approx(exact, abs=0.015)  # zeros flip nothing


def test_p_values_are_corrected_for_how_many_there_are():
    """By hand: 0.005 and 0.01 times 5/1 and 5/2, 0.03 and 0.04 times 5/3 and 5/4, but no more than a later one's."""
    corrected = intervals.corrected_p_values([0.01, 0.04, 0.03, 0.005, 0.5])
    np.testing.assert_allclose(corrected, [0.025, 0.05, 0.05, 0.025, 0.5])
    assert intervals.corrected_p_values([0.03]) == [0.03]
    assert len(intervals.corrected_p_values([])) == 0


def test_of_what_is_found_one_in_twenty_at_most_is_chance():
    """A thousand times thirty comparisons, in ten of which there is something to find."""
    random = np.random.default_rng(2)
    nothing, uncorrected = [], []
    for _ in range(1000):
        p_values = np.concatenate([random.uniform(size=20), random.uniform(high=1e-3, size=10)])
        found = intervals.corrected_p_values(p_values) < 0.05
        nothing.append(found[:20].sum() / max(found.sum(), 1))
        uncorrected.append((p_values[:20] < 0.05).sum() / (p_values < 0.05).sum())
    assert np.mean(nothing) == pytest.approx(0.05 * 20 / 30, abs=0.008)
    assert np.mean(uncorrected) > 0.08


def test_a_threshold_that_is_not_reached_is_infinitely_far():
    assert intervals.first_reaching([0.1, 0.8, 0.7, 0.9], [0, 5, 10, 15], 0.8) == 5
    assert intervals.first_reaching([0.1, 0.7], [0, 5], 0.8) == np.inf
    reached = intervals.median([4, 2, np.inf])
    assert (reached.value, reached.low, reached.high) == (4, 2, np.inf)
    assert intervals.median([4, np.inf, np.inf]).value == np.inf


def test_the_spread_of_training_seeds_is_what_decoding_seeds_do_not_explain():
    parts = intervals.spread(np.array([[0.4, 0.6], [0.8, 1.0]]))
    assert parts.decoding**2 == pytest.approx(0.02)
    assert parts.training**2 == pytest.approx(0.08)  # the same noise for both explains nothing of their difference
    parts = intervals.spread(np.array([[0.4, 0.6], [1.0, 0.8]]))
    assert parts.training**2 == pytest.approx(0.08 - 0.04 / 2)
    assert intervals.spread(np.array([[0.4, 0.6]])) == intervals.Spread(None, pytest.approx(0.02**0.5))
    assert intervals.spread(np.array([[0.4], [0.8]])) == intervals.Spread(pytest.approx(0.08**0.5), None)
    assert intervals.spread(np.array([[0.0, 1.0], [0.0, 1.0]])).training == 0


def test_a_curve_is_of_the_runs_that_have_a_number_there():
    """Sorted, what is not a number would be the highest quarter, which is left out."""
    curves = np.full((8, 3), np.nan)
    curves[:6, 0], curves[:, 1] = [1, 2, 4, 5, 6, 9], range(8)
    points = figures._typical_of_points(curves.T)
    assert points.value[:2].tolist() == [4.25, 3.5]
    assert np.isnan(points.value[2])
    assert points.low[0] < 4.25 < points.high[0]


def test_an_open_verdict_beside_an_interval_without_one_half_says_why():
    def verdict(scores, others):
        differences = np.subtract(scores, others)
        contest = Contest(
            improvement=intervals.improvement(scores, others),
            p=intervals.permutation_p_value(scores, others),
            difference=intervals.mean(differences),
            paired_p=intervals.sign_flip_p_value(differences),
        )
        return who_is_better("hgpo", "grpo", contest)

    why = ", which is not below 0.05: with few runs or many pairs, an interval that excludes one half is not enough)"
    three = verdict([0.7, 0.8, 0.9], [0.1, 0.2, 0.3])
    assert three.startswith("no significant difference (probability 1.00 (no spread), p = 0.1")
    assert three.endswith(why)
    assert why not in verdict([0.1, 0.8, 0.3], [0.1, 0.7, 0.3])
    six = verdict([0.7, 0.8, 0.9, 0.75, 0.85, 0.95], [0.1, 0.2, 0.3, 0.15, 0.25, 0.35])
    assert six.startswith("hgpo is better (probability 1.00")
    assert why not in six
    near = verdict([0.2, 0.4, 0.6, 0.8, 0.3, 0.5], [0.21, 0.42, 0.61, 0.82, 0.31, 0.52])
    assert near.startswith("no significant difference (probability 0.")
    assert near.endswith("; at the same seed grpo is ahead by 1.5 (0.9 to 2.1) points, p = 0.0312)")


class Ended(NamedTuple):
    """The properties of a run that are compared."""

    seed: int
    final_success: float
    success_while_training: float = 0.0


def test_pairs_are_judged_with_all_others_of_the_comparison():
    """The same runs of two algorithms, alone and beside two that are like the better one."""
    low, high = [0.1, 0.2, 0.3, 0.4], [0.31, 0.5, 0.6, 0.7]

    def contest(**successes):
        runs = {label: [Ended(seed, score) for seed, score in enumerate(scores)] for label, scores in successes.items()}
        return contests_of(Comparison("maze", {}, runs))["final"]["gigpo", "grpo"]

    alone, beside = contest(grpo=low, gigpo=high), contest(grpo=low, gigpo=high, hgpo=high, rloo=high)
    assert alone.p == intervals.permutation_p_value(high, low)
    assert beside.p == pytest.approx(alone.p * 6 / 3)  # three of six pairs are like this one
    assert beside.paired_p == pytest.approx(alone.paired_p * 6 / 3)
    assert beside.improvement == alone.improvement
