"""PPO's clip without the tokens whose step would change the objective or the policy too much."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hgpo_gym.registry import follows
from hgpo_gym.trainers.update.objectives import (
    Prepared,
    Surrogate,
    Tokens,
    clip_ratio,
    log_ratio,
    prefers,
    prepared_by,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hgpo_gym.policies.base import Distributions
    from hgpo_gym.trainers.update.samples import TrainingSample


class Moments(NamedTuple):
    """Second-order changes by a token's step in the last layer, float64[C] each: of the policy (`fisher`) and of the
    objective (`hessian`)."""

    fisher: np.ndarray
    hessian: np.ndarray


def norm_squared(distributions: "Distributions") -> "Tensor":
    """Return |x|^2 of what the logits are linear in."""
    return distributions.states.float().square().sum(-1) / distributions.temperature**2


def sum_squared(distributions: "Distributions") -> "Tensor":
    """Return the sum of p^2 over the tokens of the distribution."""
    return distributions.logits.softmax(-1).square().sum(-1)


def sum_cubed(distributions: "Distributions") -> "Tensor":
    """Return the sum of p^3."""
    probabilities = distributions.logits.softmax(-1)
    return (probabilities.square() * probabilities).sum(-1)


def moments(row: "TrainingSample", learning_rate: float) -> Moments:
    """Return the moments of the last layer under plain SGD, in closed form. v = onehot - p, X = |x|^2 of the hidden
    state, eta is the learning rate.

    m_F = (eta A X |v|^2)^2 / 2,   |v|^2 = 1 - 2 p_a + S2,   S2 = sum p^2,   S3 = sum p^3
    m_H = eta A^2 X |v|^2 + eta^2 / 2 A (A X)^2 (|v|^4 - (B - C^2)),
    B = p_a (1 - p_a)^2 + S3 - p_a^3,   C = p_a (1 - p_a) - S2 + p_a^2
    """
    assert row.old_logprobs is not None
    probability, advantage = np.exp(row.old_logprobs, dtype=np.float64), row.advantages.astype(np.float64)
    squares, cubes = (row.before[name].astype(np.float64) for name in ("sum_squared", "sum_cubed"))
    norm = row.before["norm_squared"].astype(np.float64)
    length = 1 - 2 * probability + squares
    fisher = (learning_rate * advantage * norm * length) ** 2 / 2
    second = probability * (1 - probability) ** 2 + cubes - probability**3
    first = probability * (1 - probability) - squares + probability**2
    hessian = learning_rate * advantage**2 * norm * length
    hessian += learning_rate**2 / 2 * advantage * (advantage * norm) ** 2 * (length**2 - (second - first**2))
    return Moments(fisher, hessian)


def prepare(
    rows: "Sequence[TrainingSample]",
    _: np.random.Generator,
    *,
    learning_rate: float,
    tau_fisher: float = 1e-3,
    tau_hessian: float = 5e-4,
) -> Prepared:
    """Keep the tokens with m_F < tau_fisher and |m_H| < tau_hessian."""
    for name, value in (("learning_rate", learning_rate), ("tau_fisher", tau_fisher), ("tau_hessian", tau_hessian)):
        if value < 0:
            raise ValueError(f"{name}={value}: choose 0 or more.")
    row_moments = [moments(row, learning_rate) for row in rows]
    loss_mask = [(values.fisher < tau_fisher) & (np.abs(values.hessian) < tau_hessian) for values in row_moments]
    quantiles = {
        "capo_fisher_q99": np.quantile(np.concatenate([values.fisher for values in row_moments]), 0.99),
        "capo_hessian_q99": np.quantile(np.abs(np.concatenate([values.hessian for values in row_moments])), 0.99),
    }
    metrics = {name: float(value) for name, value in quantiles.items()}
    return Prepared([{"loss_mask": values.astype(np.float64)} for values in loss_mask], metrics)


@follows(learning_rate="trainer.learning_rate")
@prefers("sequence_mean")
@prepared_by(prepare, reads=(norm_squared, sum_squared, sum_cubed))
def capo(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Surrogate:
    """Curvature-Aware Policy Optimization (2025, arXiv:2510.00819), its form for plain SGD. The moments are those of
    the code, their closed form is this project's.

        PPO's clip of the kept tokens; the others leave the means

    `clipped` marks the tokens that it drops or clips.

    Args:
        learning_rate: of the step that is judged.
        tau_fisher: keep tokens whose step changes the policy by less. Thresholds belong to a model: read the metrics
            capo_fisher_q99 and capo_hessian_q99 first.
        tau_hessian: keep tokens whose step changes the objective by less.
        clip_low: lower bound: the ratio is clipped at 1 - clip_low, for the tokens that are kept.
        clip_high: upper bound: the ratio is clipped at 1 + clip_high, for the tokens that are kept.
    """
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    loss, clipped = clip_ratio(ratio, tokens.advantages, clip_low, clip_high)
    loss_mask = tokens.extras["loss_mask"]
    return Surrogate(loss * loss_mask, clipped | (loss_mask == 0))
