"""Contests: every algorithm of a comparison against every other, by probability and by differences at the same seed."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from hgpo_gym.analysis.report.blocks import write
from hgpo_gym.analysis.report.intervals import (
    Estimate,
    corrected_p_values,
    improvement,
    mean,
    permutation_p_value,
    sign_flip_p_value,
)
from hgpo_gym.analysis.report.load import Comparison, FinishedRun

SIGNIFICANCE = 0.05
SCORES: dict[str, Callable[[FinishedRun], float]] = {
    "final": lambda run: run.final_success,
    "training": lambda run: run.success_while_training,
}
"""The scores that algorithms are compared by."""


class Contest(NamedTuple):
    """One algorithm against another. Both p values are corrected for the number of pairs.

    Attributes:
        improvement: probability of improvement.
        p: p value of the permutation test of ranks; None if either algorithm has one run.
        difference: the mean difference at the same seed; None without common seeds.
        paired_p: p value of the differences at the same seed; None with fewer than two.
    """

    improvement: Estimate
    p: float | None
    difference: Estimate | None
    paired_p: float | None


Contests = Mapping[str, Mapping[tuple[str, str], Contest]]
"""By score and pair: the later algorithm against the earlier one."""


def contests_of(comparison: Comparison) -> Contests:
    """Return the contests of every two algorithms, by score."""
    pairs = [(later, earlier) for earlier, later in combinations(comparison.runs, 2)]
    by_score: dict[str, dict[tuple[str, str], Contest]] = {}
    for name, score in SCORES.items():
        uncorrected = [_contest(comparison, *pair, score) for pair in pairs]
        p_values = zip(
            _corrected([contest.p for contest in uncorrected]),
            _corrected([contest.paired_p for contest in uncorrected]),
            strict=True,
        )
        by_score[name] = {
            pair: contest._replace(p=p, paired_p=paired_p)
            for pair, contest, (p, paired_p) in zip(pairs, uncorrected, p_values, strict=True)
        }
    return by_score


def _contest(comparison: Comparison, first: str, second: str, score: Callable[[FinishedRun], float]) -> Contest:
    """Return a contest with uncorrected p values."""
    scores, other_scores = comparison.scores(first, score), comparison.scores(second, score)
    differences = comparison.differences(first, second, score)
    return Contest(
        improvement=improvement(scores, other_scores),
        p=permutation_p_value(scores, other_scores) if min(len(scores), len(other_scores)) > 1 else None,
        difference=mean(differences) if len(differences) else None,
        paired_p=sign_flip_p_value(differences) if len(differences) > 1 else None,
    )


def _corrected(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p values corrected; None stays None."""
    corrected = iter(corrected_p_values([p for p in p_values if p is not None]).tolist())
    return [None if p is None else next(corrected) for p in p_values]


def is_significant(estimate: Estimate, p: float, alike: float = 0.5) -> bool:
    """Return True if two kinds of runs differ significantly, by p and by the interval of their difference.

    Args:
        estimate: the probability of improvement, or the mean difference at the same seed.
        p: the p value of the same.
        alike: the estimate for runs that do not differ: 0.5, or 0 for a difference.
    """
    return p < SIGNIFICANCE and not estimate.low <= alike <= estimate.high


def verdict(first: str, second: str, contests: Mapping[str, Contest]) -> str:
    """Return which of two is better by each score, if the difference is significant."""
    if any(contest.p is None for contest in contests.values()):
        return "not comparable with one training seed."
    return "; ".join(f"{name}, {who_is_better(first, second, contest)}" for name, contest in contests.items()) + "."


def who_is_better(first: str, second: str, contest: Contest) -> str:
    """Return which of two is significantly better, if either is, with the numbers.

    Args:
        first, second: the labels of the two, with more than a run each.
        contest: of the first against the second.
    """
    estimate, p, difference, paired_p = contest
    assert p is not None
    significant = is_significant(estimate, p)
    result = f"{first if estimate.value > 0.5 else second} is better" if significant else "no significant difference"
    numbers = f"probability {write(estimate, 'probability')}, p = {write(p, 'number')}"
    if not significant and is_significant(estimate, p=0):
        reason = "with few runs or many pairs, an interval that excludes one half is not enough"
        numbers += f", which is not below {SIGNIFICANCE:g}: {reason}"
    if not significant and difference and paired_p is not None and is_significant(difference, paired_p, alike=0):
        numbers += f"; at the same seed {ahead(first, second, difference)}, p = {write(paired_p, 'number')}"
    return f"{result} ({numbers})"


def ahead(first: str, second: str, difference: Estimate) -> str:
    """Return which of two has more, and how much more.

    Args:
        first, second: the labels of the two.
        difference: the success of the first minus that of the second, with its interval.
    """
    if difference.value < 0:
        # The ends of the interval change places with the sign.
        first, difference = second, Estimate(-difference.value, -difference.high, -difference.low, difference.runs)
    return f"{first} is ahead by {write(difference, 'points')} points"
