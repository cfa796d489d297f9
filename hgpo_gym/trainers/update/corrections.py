"""Corrections for an engine whose probabilities differ from the trainer's. They differ even with equal weights, and
more if the engine has older weights.

A correction is a pure function `(old, behaviour, sequence_index, *, options) -> weights float32[T]`:

    old: float32[T], log-probabilities by the trainer, before the update.
    behaviour: float32[T], by the engine, as recorded.
    sequence_index: int64[T], the response that each token belongs to; responses are complete.

The weights have no gradient. They multiply token losses and never change a denominator; 0 drops the token. To add one:
write it here and add its line to `CORRECTIONS`, or, from elsewhere, call `register_correction` or name it as an entry
point of the group `hgpo_gym.corrections`. Below, d = old - behaviour.
"""

from typing import TYPE_CHECKING

from hgpo_gym.registry import Choice, Registry
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.update.objectives import log_ratio, response_mean, response_sum

if TYPE_CHECKING:
    from torch import Tensor

STATISTICS = ("sum", "mean")
K3_STATISTICS = ("mean", "max")


def none(old: "Tensor", behaviour: "Tensor", sequence_index: "Tensor") -> "Tensor":  # noqa: ARG001 - the signature of all
    """Return ones: no correction."""
    return old.new_ones(old.shape)


def token(old: "Tensor", behaviour: "Tensor", sequence_index: "Tensor", *, cap: float = 2.0) -> "Tensor":  # noqa: ARG001
    """Return min(exp d, cap): truncated importance sampling (Ionides, 2008; Yao et al., 2025, "Your efficient RL
    framework secretly brings you off-policy RL training"). It is biased in long responses, with less variance than
    `sequence`.

    Args:
        cap: the largest weight.
    """
    _check_cap(cap)
    return (old - behaviour).detach().exp().clamp(max=cap)


def sequence(old: "Tensor", behaviour: "Tensor", sequence_index: "Tensor", *, cap: float = 2.0) -> "Tensor":
    """Return min(exp(sum of d over the response), cap). The gradient is unbiased except for the cap.

    Args:
        cap: the largest weight.
    """
    _check_cap(cap)
    return response_sum((old - behaviour).detach(), sequence_index).exp().clamp(max=cap)


def token_mask(
    old: "Tensor",
    behaviour: "Tensor",
    sequence_index: "Tensor",  # noqa: ARG001
    *,
    low: float = 0.0,
    high: float = 3.0,
    weigh: bool = True,
) -> "Tensor":
    """Return exp d where low <= exp d <= high, else 0. Without `weigh`, return 1 there (TRL `token_mask`, verl
    `token_k1`).

    Args:
        low: the smallest ratio that is kept.
        high: the largest ratio that is kept.
        weigh: weigh kept tokens by their ratio; false leaves their weight at 1.
    """
    return _inside(log_ratio(old, behaviour).detach().exp(), low, high, weigh)


def sequence_mask(
    old: "Tensor",
    behaviour: "Tensor",
    sequence_index: "Tensor",
    *,
    low: float = 0.0,
    high: float = 3.0,
    statistic: str = "sum",
    weigh: bool = True,
) -> "Tensor":
    """Return the mask of `token_mask` for exp(sum of d over the response), or exp(mean of d) with
    `statistic="mean"`. TRL calls this `sequence_mask`, verl `seq_sum_k1` and `seq_mean_k1`; verl's bounds are those
    of the inverse.

    Args:
        low: the smallest ratio that is kept.
        high: the largest ratio that is kept.
        statistic: `sum` or `mean` of d over the response.
        weigh: weigh kept tokens by the ratio; false leaves their weight at 1.
    """
    if statistic not in STATISTICS:
        raise ValueError(unknown_name("statistic", statistic, STATISTICS))
    over = response_sum if statistic == "sum" else response_mean
    # A sum over a long response can be large, and exp would overflow in float32.
    return _inside(over((old - behaviour).detach(), sequence_index).clamp(-20, 20).exp(), low, high, weigh)


def sequence_k3(
    old: "Tensor", behaviour: "Tensor", sequence_index: "Tensor", *, limit: float, statistic: str = "mean"
) -> "Tensor":
    """Return 1 where the response's mean (or max) of exp d - 1 - d is at most `limit`, else 0 (verl `seq_mean_k3`,
    `seq_max_k3`).

    Args:
        limit: the largest value that is kept, 0 or more.
        statistic: `mean` or `max` over the response.
    """
    if limit < 0:
        raise ValueError(f"limit={limit}: exp d - 1 - d is never negative, choose 0 or more.")
    if statistic not in K3_STATISTICS:
        raise ValueError(unknown_name("statistic", statistic, K3_STATISTICS))
    difference = log_ratio(old, behaviour).detach()
    k3 = difference.exp() - 1 - difference
    if statistic == "mean":
        return (response_mean(k3, sequence_index) <= limit).to(old.dtype)
    largest = k3.new_zeros(int(sequence_index.max()) + 1).scatter_reduce(0, sequence_index, k3, "amax")
    return (largest[sequence_index] <= limit).to(old.dtype)


def _inside(ratio: "Tensor", low: float, high: float, weigh: bool) -> "Tensor":
    if not 0 <= low <= high:
        raise ValueError(f"low={low}, high={high}: bounds of a ratio, 0 <= low <= high.")
    inside = ((ratio >= low) & (ratio <= high)).to(ratio.dtype)
    return ratio * inside if weigh else inside


def _check_cap(cap: float) -> None:
    if cap <= 0:
        raise ValueError(f"cap={cap}: the largest weight must be above 0.")


CORRECTIONS = Registry(
    "correction",
    {
        "none": none,
        "token": token,
        "sequence": sequence,
        "token_mask": token_mask,
        "sequence_mask": sequence_mask,
        "sequence_k3": sequence_k3,
    },
    arguments=3,
    entry_points="hgpo_gym.corrections",
)
NO_CORRECTION = Choice("none")
register_correction = CORRECTIONS.register
"""Add a custom correction: `(name, function)`. Raises ValueError if the name is in use."""
