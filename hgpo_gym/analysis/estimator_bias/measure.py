"""Bias, variance and error of estimated advantages where the true ones are known."""

from dataclasses import dataclass

import numpy as np

from hgpo_gym.advantages.batch import labels

BLOCKS = 10
"""Standard errors are a jackknife over this many blocks of the data."""
CERTAIN = 2.0
"""Where the truth is itself an estimate, its sign counts if it is this many standard errors from 0."""
NOTHING = 1e-9


@dataclass(frozen=True)
class Truth:
    """Steps whose true advantage is known; arrays of length N.

    Attributes:
        advantage: A(h, a) = Q(h, a) - V(h) of the step's history and action.
        variance: that of `advantage` where it was estimated itself; 0 where it is exact.
        noise: a number with mean 0 whatever the history and action, such as G_t - Q(h, a): what an estimate shares with
            it is no bias. Zeros where there is none.
        history: equal for steps with equal history and action, as far as value and context keys tell them apart.
        group: steps of different groups are independent, given their histories.
        drawn: numbers what was drawn independently: the groups, or, where a sample of histories was drawn, the task or,
            with few of them, the history.
        step: steps before this one in the episode.
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
        """int64[N], the block that a row belongs to in a jackknife."""
        return labels(self.drawn) % BLOCKS

    def __getitem__(self, rows: np.ndarray) -> "Truth":
        return Truth(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Errors:
    """Of an estimator over the steps that a policy visits. bias2, variance and error are in units of `signal`: an
    estimator that always says 0 has bias2 = error = 1 and variance 0.

    Attributes:
        bias2: mean over visits of (E[estimate | history, action] - A)^2, of those that `coverage` counts.
        variance: mean over visits of Var(estimate | history, action); bias2 + variance = error.
        error: mean of (estimate - A)^2.
        bias2_se, error_se, cosine_se: standard errors, the signal's own noise included; a 95 % interval is
            `student_quantile(blocks)` of them to either side.
        blocks: of data that are independent of each other, which the standard errors come from.
        signal: mean of A^2.
        truth_noise: the mean variance of the true advantages as they were estimated, 0 where they are exact; in units
            of `signal` like the others. It is taken out of all of them.
        sign_agreement: the share of steps at which estimate and A have the same sign, where A has one. 0 counts half.
        cosine: E[estimate * A] / sqrt(E[estimate^2] E[A^2]), which no common factor of the estimates changes.
        coverage: the share of steps that bias2 is measured on: their history and action occur in two groups or more.
            Rare ones are mostly further off, so that below 1 bias2 is too low.

    NaN where the true advantages are all 0, or lost in the noise of their own estimates; bias2, variance and error also
    where no factor above 0 could be fitted.
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

    With `fit_scale` they are first multiplied by the number that makes the slope of their regression on the truth 1:
    for estimates that are divided by a standard deviation, and so have no unit.

    E[estimate | history, action] is only sampled. The noise of the sample is taken out: of the products of deviations
    at the same history and action only those between different groups are averaged, whose noise is independent.
    """
    advantage = truth.advantage
    signal = truth.signal
    agreement = float((estimates * advantage).mean())
    scaled = estimates * _factor(agreement, signal) if fit_scale else estimates
    deviation = scaled - advantage
    squares = deviation**2 - truth.variance
    noise_square = float((truth.noise**2).mean())
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
        bias2_se=_jackknife([products.mean(products.block != one.block) / one.unit for one in left_out]),
        error_se=_jackknife([one.error(fit_scale) for one in left_out]),
        cosine_se=_jackknife([one.cosine for one in left_out]),
        signal=signal,
        truth_noise=float(truth.variance.mean()) / unit,
        sign_agreement=_sign_agreement(estimates, truth),
        cosine=moments.without(None).cosine,
        coverage=products.coverage,
        blocks=len(left_out),
    )


def _factor(agreement: float, signal: float) -> float:
    """What estimates are multiplied by to have the truth's scale; NaN for those that do not even have its direction."""
    return signal / agreement if agreement > 0 else float("nan")


@dataclass(frozen=True)
class _Mean:
    """Means over the rows that are not of a block.

    Attributes:
        square, agreement, signal: of estimate^2, estimate * A and A^2.
    """

    block: int | None
    square: float
    agreement: float
    signal: float

    @property
    def unit(self) -> float:
        """The signal; NaN where there is none."""
        return self.signal if self.signal > 0 else float("nan")

    @property
    def cosine(self) -> float:
        length = np.sqrt(self.square * self.unit)
        return self.agreement / length if length else 0.0

    def error(self, fit_scale: bool) -> float:
        """In units of the signal."""
        scale = _factor(self.agreement, self.signal) if fit_scale else 1.0
        return (scale**2 * self.square - 2 * scale * self.agreement) / self.unit + 1


class _Moments:
    """What errors are made of, summed by block."""

    def __init__(self, estimates: np.ndarray, truth: Truth):
        values = (
            np.ones(len(estimates)),
            estimates**2,
            estimates * truth.advantage,
            truth.advantage**2 - truth.variance,
        )
        self._sums = np.array([np.bincount(truth.block, weights=own, minlength=BLOCKS) for own in values])

    def without(self, block: int | None) -> _Mean:
        """Without one block, or of everything."""
        kept = np.arange(BLOCKS) != (-1 if block is None else block)
        count, *sums = self._sums[:, kept].sum(axis=1).tolist()
        return _Mean(block, *((total / count) if count else float("nan") for total in sums))


class _Products:
    """Products of deviations at the same history and action in two groups.

    Attributes:
        block: int64[P], of each pair of a history and a group that visits it.
        coverage: the share of visits to histories that two groups or more visit.
    """

    def __init__(self, deviation: np.ndarray, truth: Truth):
        histories, groups = labels(truth.history), labels(truth.group)
        many = int(groups.max()) + 1
        pairs, first, pair = np.unique(histories * many + groups, return_index=True, return_inverse=True)
        self.history, self.block = pairs // many, truth.block[first]
        self.total, self.count = np.bincount(pair, weights=deviation), np.bincount(pair).astype(np.float64)
        self.truth_variance = np.bincount(histories, weights=truth.variance) / np.bincount(histories)
        self.coverage = float(self.count[np.bincount(self.history)[self.history] > 1].sum() / len(deviation))

    def mean(self, kept: np.ndarray) -> float:
        """The mean over visits of the squared bias, from some of the pairs of a history and a group."""

        def by_history(values: np.ndarray) -> np.ndarray:
            return np.bincount(self.history[kept], weights=values[kept], minlength=len(self.truth_variance))

        visits = by_history(self.count)
        weight = visits**2 - by_history(self.count**2)
        products = by_history(self.total) ** 2 - by_history(self.total**2)
        seen = weight > 0
        if not seen.any():
            return float("nan")
        return float(np.average(products[seen] / weight[seen] - self.truth_variance[seen], weights=visits[seen]))


def _jackknife(without: list[float]) -> float:
    """The standard error of a statistic, from its values without one block of the data each; NaN with one block."""
    if len(without) < 2:
        return float("nan")
    return float(np.sqrt((len(without) - 1) * np.var(without)))


def _sign_agreement(estimates: np.ndarray, truth: Truth) -> float:
    sure = np.abs(truth.advantage) > CERTAIN * np.sqrt(truth.variance) + NOTHING
    same = np.sign(estimates[sure]) * np.sign(truth.advantage[sure])
    return float((same.mean() + 1) / 2) if sure.any() else float("nan")
