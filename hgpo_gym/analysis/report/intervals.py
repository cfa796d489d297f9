"""How sure a comparison is: interquartile means, probabilities of improvement, bootstrap intervals over training seeds.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021). The unit
that is resampled is the run: one training seed, whose tasks are not independent of each other. Runs lie along the last
axis of every array.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
RESAMPLES = 2000
PERMUTATIONS = 10_000
POWER = 0.8


@dataclass(frozen=True)
class Estimate:
    """A number, and its 95 % interval over the training seeds.

    Attributes:
        value: the number; an array for a curve.
        low, high: the interval; None where there is one run only, which says nothing about other seeds.
        runs: how many runs of each kind there are; the smallest number where there are several kinds.
    """

    value: Any
    low: Any
    high: Any
    runs: int

    @property
    def no_spread(self) -> bool:
        """Every resample gave the same number: the interval has no width, and does not say how sure it is."""
        return self.low is not None and bool(np.all(self.low == self.high))


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a success rate, by where it comes from; None where the runs cannot tell.

    Attributes:
        training: between training seeds, decoding noise taken out if `decoding` is known.
        decoding: between decoding seeds of the same weights, each one pass over the split.
    """

    training: float | None
    decoding: float | None


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the runs, [..., N] -> [...]: floor(N / 4) at either end are left out.

    With fewer than four runs nothing is left out.
    """
    count = scores.shape[-1]
    cut = count // 4
    return np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1)


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[..., N] and [..., M] -> [...]: the probability that a run of the first kind beats one of the second.

    Ties count half: the Mann-Whitney statistic over N * M.
    """
    first, second = scores[..., :, None], others[..., None, :]
    return ((first > second) + 0.5 * (first == second)).mean(axis=(-2, -1))


def bootstrap(samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], *, seed: int = 0) -> Estimate:
    """A statistic of several samples of runs, with the percentile interval of the stratified bootstrap.

    Args:
        samples: arrays [..., N_i]; each is resampled along its last axis with replacement, on its own.
        statistic: called with the samples, and with the resamples [..., RESAMPLES, N_i]; reduces the last axis.
        seed: of the resampling.

    Quantiles are resampled values, never between two, so that infinity (a threshold not reached) is like any value.
    """
    samples = [np.asarray(sample, dtype=np.float64) for sample in samples]
    value = statistic(*samples)
    counts = [sample.shape[-1] for sample in samples]
    if min(counts) < 2:
        return Estimate(value, None, None, min(counts))
    random = np.random.default_rng(seed)
    resampled = statistic(
        *(
            sample[..., random.integers(count, size=(RESAMPLES, count))]
            for sample, count in zip(samples, counts, strict=True)
        )
    )
    tail = (1 - CONFIDENCE) / 2
    low = np.quantile(resampled, tail, axis=-1, method="lower")
    high = np.quantile(resampled, 1 - tail, axis=-1, method="higher")
    return Estimate(value, low, high, min(counts))


def typical(scores: Sequence[float] | np.ndarray) -> Estimate:
    """The interquartile mean of the runs with its interval."""
    return bootstrap([np.asarray(scores)], interquartile_mean)


def typical_of_strata(strata: Sequence[np.ndarray]) -> Estimate:
    """The interquartile mean of the runs of several settings together, each setting resampled on its own."""
    return bootstrap(strata, lambda *parts: interquartile_mean(np.concatenate(parts, axis=-1)))


def median(values: Sequence[float] | np.ndarray) -> Estimate:
    """The median of the runs with its interval; infinite where half of the runs or more are."""
    return bootstrap([np.asarray(values)], lambda sample: np.median(sample, axis=-1))


def improvement(scores: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray) -> Estimate:
    """The probability of improvement of the first kind of run over the second, with its interval."""
    return bootstrap([np.asarray(scores), np.asarray(others)], probability_of_improvement)


def mean(values: Sequence[float] | np.ndarray) -> Estimate:
    """The mean of the runs with its t interval; of differences within seeds, what the seeds share cancels.

    The percentile bootstrap of a mean is too narrow for few runs: from a normal distribution it holds the truth in 84 %
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
    """Half of a 95 % interval in standard errors: Student's t with as many degrees of freedom as there are independent
    numbers but one; NaN with one."""
    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) if count > 1 else float("nan")


def permutation_p_value(scores: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray) -> float:
    """How often runs that do not differ in kind would differ in rank as much as these, by shuffling which is which.

    Two-sided. It holds where the bootstrap does not: two runs against two others that are all better cannot tell the
    kinds apart (p = 1/3), although every resample of them agrees.
    """
    pooled = np.concatenate([scores, others])
    _, place, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    expected = len(scores) * ranks.mean()
    # Ranks are halves of whole numbers; the margin only absorbs the rounding of their mean.
    distances = np.abs(ranks[_shuffles(len(ranks))[:, : len(scores)]].sum(axis=1) - expected) + 1e-9
    observed = abs(ranks[: len(scores)].sum() - expected)
    return float((1 + np.count_nonzero(distances >= observed)) / (PERMUTATIONS + 1))


@lru_cache(maxsize=16)
def _shuffles(count: int) -> np.ndarray:
    """int16[PERMUTATIONS, count]: in each row the numbers below count."""
    ordered = np.tile(np.arange(count, dtype=np.int16), (PERMUTATIONS, 1))
    return np.random.default_rng(0).permuted(ordered, axis=1)


def at_shared_seeds(scores: Mapping[int, float], others: Mapping[int, float]) -> np.ndarray:
    """float64[seeds]: how much more the first has than the second, at the seeds that both have."""
    return np.array([own - others[seed] for seed, own in scores.items() if seed in others])


def sign_flip_p_value(differences: Sequence[float] | np.ndarray) -> float:
    """How often differences within seeds would be as large on average if either kind of run could as well have been the
    other: their signs are flipped, each on its own, in all ways or, where these are too many, in `PERMUTATIONS`.

    Two-sided. What the seeds share cancels, which ranks of the runs themselves do not see (Fisher's randomization test
    of paired samples, The Design of Experiments, 1935).

    Args:
        differences: float[seeds].
    """
    values = np.asarray(differences, dtype=np.float64)
    count = len(values)
    if 2**count <= PERMUTATIONS:
        signs = 1 - 2 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
        unseen = 0
    else:
        signs = np.random.default_rng(0).choice((-1, 1), size=(PERMUTATIONS, count))
        unseen = 1
    margin = 1e-9 * np.abs(values).sum()  # of the rounding of sums that are equal
    as_large = np.abs(signs @ values) >= abs(values.sum()) - margin
    return float((unseen + np.count_nonzero(as_large)) / (unseen + len(signs)))


def corrected_p_values(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """[N] -> float64[N]: of comparisons made at once, so that of those below 0.05 at most one in twenty is expected to
    be there by chance, however many they are.

    By the false discovery rate (Benjamini & Hochberg, Journal of the Royal Statistical Society B 57, 1995): the k-th
    smallest times N / k, but never more than a larger one's. It holds for comparisons that are independent or go
    together, as those with one baseline do.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p_values)[::-1]
    scaled = p_values[order] * len(order) / np.arange(len(order), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum.accumulate(scaled)
    return corrected


def runs_to_tell(probability: float, pairs: int = 1) -> int | None:
    """Runs of each kind that it takes to tell two kinds apart, if this is the probability of improvement; None at one
    half, where no number does.

    For a two-sided rank test with 80 % power, at the 5 % level over the number of pairs that are judged together (that
    is enough even where no other pair is told apart): n = (z_(1 - 0.025 / pairs) + z_0.8)^2 / (6 (p - 1/2)^2) (Noether,
    Sample Size Determination for Some Common Nonparametric Tests, JASA 1987).
    """
    if probability == 0.5:
        return None
    return ceil(_quantiles(pairs) ** 2 / (6 * (probability - 0.5) ** 2))


def seeds_to_tell(differences: Sequence[float] | np.ndarray, pairs: int = 1) -> int | None:
    """Seeds that it takes to tell two kinds of runs apart by their differences at the same seed, if these have the mean
    and the deviation that they show; None at a mean of 0, where no number does.

    With the power and the level of `runs_to_tell`: n = ((z_(1 - 0.025 / pairs) + z_0.8) deviation / mean)^2, for the
    normal approximation of the paired test.

    Args:
        differences: float[seeds], of two seeds or more.
    """
    average = float(np.mean(differences))
    if average == 0:
        return None
    return ceil((_quantiles(pairs) * float(np.std(differences, ddof=1)) / average) ** 2)


def _quantiles(pairs: int) -> float:
    """Standard errors by which a mean must differ from 0 to be told with `POWER` among so many pairs."""
    level = 1 - (1 - CONFIDENCE) / (2 * pairs)
    return NormalDist().inv_cdf(level) + NormalDist().inv_cdf(POWER)


def first_reaching(success: Sequence[float], positions: Sequence[float], threshold: float) -> float:
    """The position (iteration, steps, seconds) of the first evaluation with at least this success; infinity if none."""
    return next(
        (position for value, position in zip(success, positions, strict=True) if value >= threshold), float("inf")
    )


def spread(success: np.ndarray) -> Spread:
    """Where the spread of an evaluation comes from: a two-way analysis of variance with random effects, since all runs
    are evaluated under the same decoding seeds.

    Args:
        success: float64[runs, decoding seeds]; each entry is one pass over the split.

    The decoding variance is the mean variance within runs; the training variance is that of the runs' means less the
    share of it that decoding noise of their own explains, at least 0. What a decoding seed does to all runs alike is in
    their means' level, not in their variance (Searle, Casella & McCulloch, Variance Components, 1992).
    """
    runs, decodings = success.shape
    decoding = float(success.var(axis=1, ddof=1).mean()) if decodings > 1 else None
    training = float(success.mean(axis=1).var(ddof=1)) if runs > 1 else None
    if training is not None and decodings > 1:
        own = success - success.mean(axis=1, keepdims=True) - success.mean(axis=0) + success.mean()
        training = max(0.0, training - float((own**2).sum()) / ((runs - 1) * (decodings - 1) * decodings))
    return Spread(*(None if variance is None else variance**0.5 for variance in (training, decoding)))
