"""Statistics of comparisons over training seeds: interquartile means, probabilities of improvement, intervals.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021). The unit
that the bootstrap resamples is the run, that is one training seed, whose tasks are not independent. Runs lie along the
last axis of every array.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist
from typing import Any

import numpy as np

# scipy takes long to import (stats: half a second). Only comparisons of several runs import it, where they need it.

CONFIDENCE = 0.95
RESAMPLES = 2000
PERMUTATIONS = 10_000
POWER = 0.8


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over the training seeds.

    Attributes:
        value: the number; an array for a curve.
        low, high: the interval; None with one run, which says nothing about other seeds.
        runs: the number of runs; with several kinds of runs, the smallest number.
    """

    value: Any
    low: Any
    high: Any
    runs: int

    @property
    def no_spread(self) -> bool:
        """True if every resample gave the same number: the interval has no width, and does not measure uncertainty."""
        return self.low is not None and bool(np.all(self.low == self.high))


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a success rate, by its source; None if the runs cannot tell.

    Attributes:
        training: between training seeds, less the decoding noise if `decoding` is known.
        decoding: between decoding seeds of the same weights; each seed is one pass over the split.
    """

    training: float | None
    decoding: float | None


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of the runs, [..., N] -> [...].

    floor(N / 4) runs at either end are left out: none with fewer than four runs.
    """
    count = scores.shape[-1]
    cut = count // 4
    return np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1)


def probability_of_improvement(scores: np.ndarray, other_scores: np.ndarray) -> np.ndarray:
    """Return the probability that a run of the first kind beats one of the second, [..., N] and [..., M] -> [...].

    Ties count half: the Mann-Whitney statistic over N * M.
    """
    first, second = scores[..., :, None], other_scores[..., None, :]
    return ((first > second) + 0.5 * (first == second)).mean(axis=(-2, -1))


def bootstrap(samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray]) -> Estimate:
    """Return a statistic of several samples of runs, with the percentile interval of the stratified bootstrap.

    Args:
        samples: arrays [..., N_i]; each is resampled separately, along its last axis with replacement.
        statistic: called with the samples, and with the resamples [..., RESAMPLES, N_i]; reduces the last axis.

    Quantiles are resampled values and not interpolated: infinity (a threshold not reached) is a value like any other.
    """
    samples = [np.asarray(sample, dtype=np.float64) for sample in samples]
    value, runs = statistic(*samples), min(sample.shape[-1] for sample in samples)
    if runs < 2:
        return Estimate(value, None, None, runs)
    from scipy import stats

    with np.errstate(invalid="ignore"):  # it also takes a standard deviation, NaN where there is infinity
        resampled = stats.bootstrap(
            samples,
            lambda *resamples, axis: statistic(*resamples),  # noqa: ARG005 - always the last axis
            vectorized=True,
            axis=-1,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(0),
        ).bootstrap_distribution
    tail = (1 - CONFIDENCE) / 2
    # Interpolation next to infinity would give NaN, hence the methods lower and higher.
    low = np.quantile(resampled, tail, axis=-1, method="lower")
    high = np.quantile(resampled, 1 - tail, axis=-1, method="higher")
    return Estimate(value, low, high, runs)


def typical(scores: Sequence[float] | np.ndarray) -> Estimate:
    """Return the interquartile mean of the runs with its interval."""
    return bootstrap([np.asarray(scores)], interquartile_mean)


def typical_of_strata(strata: Sequence[np.ndarray]) -> Estimate:
    """Return the interquartile mean of the runs of several settings together; each setting is resampled separately."""
    return bootstrap(strata, lambda *parts: interquartile_mean(np.concatenate(parts, axis=-1)))


def median(values: Sequence[float] | np.ndarray) -> Estimate:
    """Return the median of the runs with its interval; infinite if half of the runs or more are."""
    return bootstrap([np.asarray(values)], lambda sample: np.median(sample, axis=-1))


def improvement(scores: Sequence[float] | np.ndarray, other_scores: Sequence[float] | np.ndarray) -> Estimate:
    """Return the probability of improvement of the first kind of run over the second, with its interval."""
    return bootstrap([np.asarray(scores), np.asarray(other_scores)], probability_of_improvement)


def mean(values: Sequence[float] | np.ndarray) -> Estimate:
    """Return the mean of the runs with its t interval. For differences within seeds, shared effects of the seed cancel.

    The percentile bootstrap of a mean is too narrow for few runs. For a normal distribution it holds the truth in 84 %
    of cases with 5 runs and in 88 % with 10, this one in 95 % with any number (Hesterberg, What Teachers Should Know
    About the Bootstrap, The American Statistician 69, 2015).

    Args:
        values: float[runs].
    """
    runs = np.asarray(values, dtype=np.float64)
    count, value = len(runs), runs.mean()
    if count < 2:
        return Estimate(value, None, None, count)
    deviation = (runs - runs[0]).std(ddof=1)  # exactly 0 where all are equal
    half = student_quantile(count) * deviation / np.sqrt(count)
    return Estimate(value, value - half, value + half, count)


def student_quantile(count: int) -> float:
    """Return half of a 95 % interval in standard errors; NaN for one number.

    It is Student's t quantile, with one degree of freedom less than there are independent numbers.
    """
    if count < 2:
        return float("nan")
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))


def permutation_p_value(scores: Sequence[float] | np.ndarray, other_scores: Sequence[float] | np.ndarray) -> float:
    """Return the p value of a permutation test of ranks: runs are shuffled between the two kinds.

    All shuffles are tried, or `PERMUTATIONS` random ones if there are more.

    Two-sided. It is valid where the bootstrap is not. If two runs lose to two others, p is 1/3 and the kinds are not
    distinguished, although every resample agrees.
    """
    from scipy import stats

    ranks = stats.rankdata([*scores, *other_scores])
    deviations = ranks - ranks.mean()  # exact: halves of whole numbers
    return _permutation_p_value(
        (deviations[: len(scores)], deviations[len(scores) :]),
        lambda first, _, axis: np.abs(first.sum(axis=axis)),
        permutation_type="independent",
        alternative="greater",
    )


def at_shared_seeds(scores: Mapping[int, float], other_scores: Mapping[int, float]) -> np.ndarray:
    """Return the first score less the second at every seed that both have, float64[seeds]."""
    return np.array([score - other_scores[seed] for seed, score in scores.items() if seed in other_scores])


def sign_flip_p_value(differences: Sequence[float] | np.ndarray) -> float:
    """Return the p value of a sign-flip test of paired differences.

    It is the share of sign flips whose mean is as large as the observed one. All flips are tried, or `PERMUTATIONS`
    random ones if there are more.

    Two-sided. Shared effects of the seed cancel, which ranks of the runs do not see (Fisher's randomization test of
    paired samples, The Design of Experiments, 1935).

    Args:
        differences: float[seeds].
    """
    return _permutation_p_value((differences,), np.sum, permutation_type="samples")


def _permutation_p_value(samples: Sequence[Any], statistic: Callable[..., Any], **options: Any) -> float:
    from scipy import stats

    random = np.random.default_rng(0)
    return float(stats.permutation_test(samples, statistic, n_resamples=PERMUTATIONS, rng=random, **options).pvalue)


def corrected_p_values(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return p values corrected for the number of comparisons, [N] -> float64[N].

    Of the comparisons below 0.05, at most one in twenty is expected to be a false discovery (Benjamini & Hochberg,
    Journal of the Royal Statistical Society B 57, 1995). The k-th smallest is multiplied by N / k, and never exceeds a
    larger one's. This holds if comparisons are independent or positively dependent, as those with one baseline are.
    """
    if not len(p_values):
        return np.zeros(0)
    from scipy import stats

    return stats.false_discovery_control(p_values)


def runs_needed(probability: float, pairs: int = 1) -> int | None:
    """Return the runs of each kind that distinguish two kinds with this probability of improvement; None at one half.

    For a two-sided rank test with 80 % power. The level is 5 % over the number of pairs that are judged together, which
    is enough even if no other pair is distinguished: n = (z_(1 - 0.025 / pairs) + z_0.8)^2 / (6 (p - 1/2)^2) (Noether,
    Sample Size Determination for Some Common Nonparametric Tests, JASA 1987).
    """
    if probability == 0.5:
        return None
    return ceil(_quantiles(pairs) ** 2 / (6 * (probability - 0.5) ** 2))


def seeds_needed(differences: Sequence[float] | np.ndarray, pairs: int = 1) -> int | None:
    """Return the seeds that distinguish two kinds of runs by their differences at the same seed; None at a mean of 0.

    The differences are assumed to keep their mean and standard deviation.

    With the power and the level of `runs_needed`: n = ((z_(1 - 0.025 / pairs) + z_0.8) deviation / mean)^2, for the
    normal approximation of the paired test.

    Args:
        differences: float[seeds], of two seeds or more.
    """
    average = float(np.mean(differences))
    if average == 0:
        return None
    return ceil((_quantiles(pairs) * float(np.std(differences, ddof=1)) / average) ** 2)


def _quantiles(pairs: int) -> float:
    """Return the standard errors by which a mean must differ from 0 to be detected with `POWER` among so many pairs."""
    level = 1 - (1 - CONFIDENCE) / (2 * pairs)
    return NormalDist().inv_cdf(level) + NormalDist().inv_cdf(POWER)


def first_reaching(success: Sequence[float], positions: Sequence[float], threshold: float) -> float:
    """Return the position (iteration, steps, seconds) of the first evaluation with this success, or infinity."""
    return next(
        (position for value, position in zip(success, positions, strict=True) if value >= threshold), float("inf")
    )


def spread(success: np.ndarray) -> Spread:
    """Return the spread of an evaluation by its source: a two-way analysis of variance with random effects.

    All runs are evaluated under the same decoding seeds.

    Args:
        success: float64[runs, decoding seeds]; each entry is one pass over the split.

    The decoding variance is the mean variance within runs. The training variance is that of the runs' means, less the
    share that decoding noise explains, and at least 0. An effect of a decoding seed on all runs shifts the level of
    their means, not their variance (Searle, Casella & McCulloch, Variance Components, 1992).
    """
    runs, decodings = success.shape
    decoding = float(success.var(axis=1, ddof=1).mean()) if decodings > 1 else None
    training = float(success.mean(axis=1).var(ddof=1)) if runs > 1 else None
    if training is not None and decodings > 1:
        # The interaction's variance, over (runs - 1)(decodings - 1) degrees of freedom.
        residuals = success - success.mean(axis=1, keepdims=True) - success.mean(axis=0) + success.mean()
        training = max(0.0, training - float((residuals**2).sum()) / ((runs - 1) * (decodings - 1) * decodings))
    return Spread(*(None if variance is None else variance**0.5 for variance in (training, decoding)))
