"""Bias, variance and error of estimated advantages where the true ones are known."""

from dataclasses import dataclass

import numpy as np

from hgpo_gym.advantages.batch import labels

BLOCKS = 10
"""Standard errors are a jackknife over this many blocks of the data."""
CERTAIN = 2.0
"""If the truth is an estimate, its sign counts only this many standard errors from 0."""
NOTHING = 1e-9


@dataclass(frozen=True)
class Truth:
    """Steps whose true advantage is known; arrays of length N.

    Attributes:
        advantage: A(h, a) = Q(h, a) - V(h) of the step's history and action.
        variance: the variance of `advantage` if it was estimated; 0 if it is exact.
        noise: a number with mean 0 for every history and action, such as G_t - Q(h, a). The part that an estimate
            shares with it is no bias. Zeros if unknown.
        history: equal for steps with equal history and action, as far as value and context keys tell them apart.
        group: steps of different groups are independent, given their histories.
        drawn: a label of the independent draw: the group; for a sample of histories the task, or with few tasks the
            history.
        step: the number of steps before this one in the episode.
    """

    advantage: np.ndarray
    variance: np.ndarray
    noise: np.ndarray
    history: np.ndarray
    group: np.ndarray
    drawn: np.ndarray
    step: np.ndarray

    @property
    def signal(self) -> float:
        """The mean square of the true advantages."""
        return float((self.advantage**2 - self.variance).mean())

    @property
    def block(self) -> np.ndarray:
        """The jackknife block of each row, int64[N]."""
        return labels(self.drawn) % BLOCKS

    def __getitem__(self, rows: np.ndarray) -> "Truth":
        return Truth(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Errors:
    """The errors of an estimator over the steps that a policy visits.

    bias2, variance and error are in units of `signal`. An estimator that always returns 0 has bias2 = error = 1 and
    variance 0.

    Attributes:
        bias2: mean over the visits that `coverage` counts of (E[estimate | history, action] - A)^2.
        variance: mean over visits of Var(estimate | history, action); bias2 + variance = error.
        error: mean of (estimate - A)^2.
        bias2_se, error_se, cosine_se: standard errors, including the noise of the signal. A 95 % interval extends
            `student_quantile(blocks)` standard errors to either side.
        blocks: the number of independent blocks of data that the standard errors come from.
        signal: mean of A^2.
        truth_noise: the mean variance of the estimated true advantages, in units of `signal`; 0 if they are exact. It
            is subtracted from all errors.
        sign_agreement: the share of steps at which estimate and A have the same sign, among steps whose A has one. An
            estimate of 0 counts half.
        cosine: E[estimate * A] / sqrt(E[estimate^2] E[A^2]); a common factor of the estimates does not change it.
        coverage: the share of steps that bias2 is measured on: their history and action occur in two groups or more.
            Rare histories mostly have a larger bias, so that bias2 is too low if coverage is below 1.

    All are NaN if the true advantages are all 0, or smaller than their noise. bias2, variance and error are also NaN if
    no positive factor could be fitted.
    """

    bias2: float
    variance: float
    error: float
    bias2_se: float
    error_se: float
    cosine_se: float
    signal: float
    truth_noise: float
    sign_agreement: float
    cosine: float
    coverage: float
    blocks: int


def measure(estimates: np.ndarray, truth: Truth, *, fit_scale: bool = False) -> Errors:
    """Compare estimates, float64[N], with the truth.

    With `fit_scale` the estimates are first multiplied by one factor. It makes the slope of their regression on the
    truth 1. Estimates that are divided by a standard deviation need it, since they have no unit.

    E[estimate | history, action] is only sampled, and the noise of the sample is subtracted. Deviations at the same
    history and action are multiplied only between different groups, whose noise is independent.
    """
    advantage = truth.advantage
    signal = truth.signal
    agreement = float((estimates * advantage).mean())
    scaled = estimates * _factor(agreement, signal) if fit_scale else estimates
    deviation = scaled - advantage
    squares = deviation**2 - truth.variance
    noise_square = float((truth.noise**2).mean())
    # The regression on a noise of mean 0 lowers the variance of bias2 and does not change its expectation.
    shared = float((scaled * truth.noise).mean()) / noise_square if noise_square > 0 else 0.0
    products = _Products(deviation - shared * truth.noise, truth)
    bias2, error = products.mean(products.block >= 0), float(squares.mean())
    unit = signal if signal > 0 else float("nan")
    moments = _Moments(estimates, truth)
    left_out = [moments.without(block) for block in np.unique(truth.block)]
    return Errors(
        bias2=bias2 / unit,
        variance=(error - bias2) / unit,
        error=error / unit,
        bias2_se=_jackknife([products.mean(products.block != fold.block) / fold.unit for fold in left_out]),
        error_se=_jackknife([fold.error(fit_scale) for fold in left_out]),
        cosine_se=_jackknife([fold.cosine for fold in left_out]),
        signal=signal,
        truth_noise=float(truth.variance.mean()) / unit,
        sign_agreement=_sign_agreement(estimates, truth),
        cosine=moments.without(None).cosine,
        coverage=products.coverage,
        blocks=len(left_out),
    )


def _factor(agreement: float, signal: float) -> float:
    """Return the factor that brings estimates to the truth's scale; NaN if estimates and truth do not correlate."""
    return signal / agreement if agreement > 0 else float("nan")


@dataclass(frozen=True)
class _Mean:
    """Means over all rows outside a block.

    Attributes:
        square, agreement, signal: the means of estimate^2, estimate * A and A^2.
    """

    block: int | None
    square: float
    agreement: float
    signal: float

    @property
    def unit(self) -> float:
        """The signal; NaN if it is not above 0."""
        return self.signal if self.signal > 0 else float("nan")

    @property
    def cosine(self) -> float:
        length = np.sqrt(self.square * self.unit)
        return self.agreement / length if length else 0.0

    def error(self, fit_scale: bool) -> float:
        """Return the error in units of the signal."""
        scale = _factor(self.agreement, self.signal) if fit_scale else 1.0
        return (scale**2 * self.square - 2 * scale * self.agreement) / self.unit + 1


class _Moments:
    """The sums that errors are computed from, one for each block."""

    def __init__(self, estimates: np.ndarray, truth: Truth):
        values = (
            np.ones(len(estimates)),
            estimates**2,
            estimates * truth.advantage,
            truth.advantage**2 - truth.variance,
        )
        self._sums = np.array([np.bincount(truth.block, weights=moment, minlength=BLOCKS) for moment in values])

    def without(self, block: int | None) -> _Mean:
        """Return the means without one block; None: over all blocks."""
        included = np.arange(BLOCKS) != (-1 if block is None else block)
        count, *sums = self._sums[:, included].sum(axis=1).tolist()
        return _Mean(block, *((total / count) if count else float("nan") for total in sums))


class _Products:
    """Products of deviations at the same history and action in two groups.

    Attributes:
        block: int64[P], the block of each pair of a history and a group that visits it.
        coverage: the share of visits to histories that two groups or more visit.
    """

    def __init__(self, deviation: np.ndarray, truth: Truth):
        histories, groups = labels(truth.history), labels(truth.group)
        num_groups = int(groups.max()) + 1
        # One integer label for each (history, group), so that a single np.unique finds all pairs.
        pairs, first, pair = np.unique(histories * num_groups + groups, return_index=True, return_inverse=True)
        self.history, self.block = pairs // num_groups, truth.block[first]
        self.total, self.count = np.bincount(pair, weights=deviation), np.bincount(pair).astype(np.float64)
        self.truth_variance = np.bincount(histories, weights=truth.variance) / np.bincount(histories)
        self.coverage = float(self.count[np.bincount(self.history)[self.history] > 1].sum() / len(deviation))

    def mean(self, included: np.ndarray) -> float:
        """Return the mean over visits of the squared bias, from some of the pairs of a history and a group."""

        def by_history(values: np.ndarray) -> np.ndarray:
            return np.bincount(self.history[included], weights=values[included], minlength=len(self.truth_variance))

        visits = by_history(self.count)
        # The square of a sum minus the sum of squares leaves only products between different groups.
        weight = visits**2 - by_history(self.count**2)
        products = by_history(self.total) ** 2 - by_history(self.total**2)
        repeated = weight > 0
        if not repeated.any():
            return float("nan")
        return float(
            np.average(products[repeated] / weight[repeated] - self.truth_variance[repeated], weights=visits[repeated])
        )


def _jackknife(without: list[float]) -> float:
    """Return the standard error of a statistic, from its values without one block of the data each.

    NaN with a single block.
    """
    if len(without) < 2:
        return float("nan")
    return float(np.sqrt((len(without) - 1) * np.var(without)))


def _sign_agreement(estimates: np.ndarray, truth: Truth) -> float:
    # NOTHING keeps the rounding error of an exact 0 from counting as a sign.
    significant = np.abs(truth.advantage) > CERTAIN * np.sqrt(truth.variance) + NOTHING
    sign_products = np.sign(estimates[significant]) * np.sign(truth.advantage[significant])
    return float((sign_products.mean() + 1) / 2) if significant.any() else float("nan")
