"""Several comparisons together: ranks, probabilities, and the number of runs that show a difference."""

import re

import numpy as np
import pytest

from hgpo_gym.analysis.report.intervals import probability_of_improvement, runs_needed, seeds_needed
from hgpo_gym.analysis.report.standings import best_against_each, mean_ranks


def test_ranks_are_those_of_the_means_and_equal_ones_share_theirs():
    estimate = mean_ranks(np.array([[[0.9, 0.9], [0.1, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5], [0.2, 0.2]]]))
    np.testing.assert_allclose(estimate.value, [(1 + 1.5) / 2, (3 + 1.5) / 2, (2 + 3) / 2])
    np.testing.assert_allclose([estimate.low, estimate.high], [[1] * 3, [3] * 3])  # two runs leave all open
    with pytest.raises(ValueError, match=r"comparisons of \[3, 2\] algorithms"):
        mean_ranks([[np.ones(3)] * 3, [np.ones(3)] * 2])


def test_ranks_stay_open_between_those_that_are_surely_better_and_worse():
    far = [place + 0.01 * np.arange(8.0) for place in (0.5, 0.9, 0.1)]
    estimate = mean_ranks([far])
    np.testing.assert_array_equal([estimate.value, estimate.low, estimate.high], [[2, 1, 3]] * 3)
    alike = [far[0], far[0] + 0.001, far[2]]
    estimate = mean_ranks([alike, far])
    np.testing.assert_allclose(estimate.value, [2.0, 1.0, 3.0])
    np.testing.assert_allclose(estimate.low, [1.5, 1.0, 3.0])
    np.testing.assert_allclose(estimate.high, [2.0, 1.5, 3.0])
    assert mean_ranks([[one[:1] for one in far]]).low is None


@pytest.mark.slow
def test_open_ranks_hold_the_true_ones_of_close_algorithms():
    """Neighbours a third of a deviation apart: resampled ranks would hold the best one's in less than half of cases."""
    random, held = np.random.default_rng(0), np.zeros(6)
    truth = np.arange(6)[::-1] / 3
    for _ in range(12):
        estimate = mean_ranks([list(random.normal(truth[:, None], size=(6, 10))) for _ in range(3)])
        held += (estimate.low <= np.arange(1, 7)) & (np.arange(1, 7) <= estimate.high)
    assert held.min() >= 11


def by_seed(**scores):
    return {name: dict(enumerate(values.tolist())) for name, values in scores.items()}


def test_who_mostly_does_worse_beats_nobody_by_a_higher_interquartile_mean():
    """If runs end at one of two levels, the middle half may differ from the pairs of runs."""
    one, other = np.r_[np.full(36, 0.5), np.full(14, 1.0)], np.linspace(0.515, 0.525, 50)
    (sentence,) = best_against_each(by_seed(one=one, other=other))
    assert sentence.startswith("other beats one with probability 0.72 (")
    assert sentence.endswith("at 50 seeds, though one has the higher interquartile mean.")
    ranks = mean_ranks([[one, other]])
    assert ranks.value.tolist() == [1, 2]
    assert (ranks.low.tolist(), ranks.high.tolist()) == ([1, 1], [2, 2])


def test_sentences_about_many_pairs_are_corrected_for_their_number():
    best, worse, alike = np.arange(5.0) + 3.0, np.arange(5.0), np.arange(5.0) + 2.9
    assert best_against_each(by_seed(best=best, worse=worse))[0].startswith("best beats worse")
    sentences = best_against_each(by_seed(best=best, worse=worse, alike=alike))
    assert sentences[0].startswith(
        "best and worse do not differ significantly (5 seeds"
    )  # the best was looked for among three pairs


@pytest.mark.slow
def test_the_best_of_algorithms_that_do_not_differ_seldom_beats_another():
    """The best algorithm is chosen by the same runs that are then tested."""
    random = np.random.default_rng(0)
    found = sum(
        any(
            word in sentence
            for sentence in best_against_each(by_seed(**{name: random.normal(size=10) for name in "abcdef"}))
            for word in (" beats ", " ahead by ")
        )
        for _ in range(20)
    )
    assert found <= 3


def test_the_runs_that_it_takes_are_those_of_noethers_formula():
    assert runs_needed(0.6) == runs_needed(0.4) == 131
    assert runs_needed(0.75) == 21
    assert runs_needed(0.5) is None
    assert runs_needed(0.75, pairs=10) == 36  # (2.807 + 0.842)^2 / (6 * 0.25^2)


def test_seeds_that_differences_take_are_those_of_the_paired_test():
    differences = np.array([0.0, 0.2])  # a mean of 0.1, a deviation of 0.1414
    assert seeds_needed(differences) == seeds_needed(-differences) == 16  # 2 * (1.960 + 0.842)^2
    assert seeds_needed(differences, pairs=10) == 27  # 2 * (2.807 + 0.842)^2
    assert seeds_needed(np.array([0.1, -0.1])) is None


def test_what_seeds_share_cancels_where_runs_do_not_tell():
    """Seeds far apart, and one of two a little better at each."""
    seeds, random = np.arange(8.0), np.random.default_rng(0)
    little = 0.01 + 0.001 * random.normal(size=8)

    def told_of(noise):
        (sentence,) = best_against_each(by_seed(one=seeds + little + noise, other=seeds))
        return sentence

    assert re.fullmatch(
        r"one and other do not differ significantly \(8 seeds, probability 0\.5\d \(.*\)\); at the same seed one "
        r"is ahead by 1\.\d \(\d\.\d to 1\.\d\) points\.",
        told_of(0),
    )
    assert told_of(np.tile([1.0, -1.0], 4)).endswith("needs more than 10,000 seeds.")
    noise = np.tile([0.1, -0.1], 4)
    assert told_of(noise).endswith(f"needs about {seeds_needed(little + noise):,} seeds.")
    # Other seeds have nothing in common: ranks alone tell how many it takes.
    (sentence,) = best_against_each({"one": dict(enumerate(seeds + 1)), "other": dict(enumerate(seeds, start=8))})
    needed = runs_needed(float(probability_of_improvement(seeds + 1, seeds)))
    assert sentence.endswith(f"needs about {needed:,} seeds.")
