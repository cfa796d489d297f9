"""Terms that several objectives share."""

from typing import TYPE_CHECKING

from hgpo_gym.trainers.update.objectives.tokens import Surrogate

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_LOG_RATIO = 20.0
LARGEST_KL = 10.0
ROUNDING = 1e-5
"""Engine and trainer with equal weights differ by less than this in float32."""


def log_ratio(logprobs: "Tensor", old_logprobs: "Tensor") -> "Tensor":
    """Return the log of the probability ratio, float[T], clamped to +-20. It has no gradient outside of that."""
    return (logprobs - old_logprobs).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def distance(values: "Tensor") -> "Tensor":
    """Return |values|, float[T], with no gradient within a rounding error of 0. Otherwise the sign of that error
    would push with full strength, and in another direction for each split into micro-batches."""
    return values.where(values.abs() > ROUNDING, values.detach()).abs()


def kl_k3(logprobs: "Tensor", reference: "Tensor") -> "Tensor":
    """Return KL(policy | reference), float[T], by the estimator k3 (Schulman, 2020): exp(d) - d - 1 with d = log(ref
    / pi).

    It is never negative. It is unbiased for tokens drawn from the policy, except for two clamps: d at +-20 and the
    value at 10, beyond which it has no gradient. Without them one token at d = 10 would have a loss of 22,000.
    """
    difference = log_ratio(reference, logprobs)
    return (difference.exp() - difference - 1).clamp(max=LARGEST_KL)


def response_sum(values: "Tensor", sequence_index: "Tensor") -> "Tensor":
    """Return float[T]: for each token the sum over its response."""
    sums = values.new_zeros(int(sequence_index.max()) + 1).index_add(0, sequence_index, values)
    return sums[sequence_index]


def response_mean(values: "Tensor", sequence_index: "Tensor") -> "Tensor":
    """Return float[T]: for each token the mean over its response."""
    return response_sum(values, sequence_index) / sequence_index.bincount()[sequence_index]


def position(sequence_index: "Tensor") -> "Tensor":
    """Return int64[T]: the token's position in its response, from 0."""
    lengths = sequence_index.bincount()
    starts = lengths.cumsum(0) - lengths
    return sequence_index.new_ones(len(sequence_index)).cumsum(0) - 1 - starts[sequence_index]


def by_sign(advantages: "Tensor", positive: float, negative: float) -> "Tensor":
    """Return float[T]: `positive` where the advantage is above 0, else `negative`."""
    return advantages.new_full(advantages.shape, negative).masked_fill(advantages > 0, positive)


def clip_ratio(
    ratio: "Tensor",
    advantages: "Tensor",
    clip_low: "float | Tensor",
    clip_high: "float | Tensor",
    dual_clip: float | None = None,
) -> Surrogate:
    """Return PPO's clipped objective (Schulman et al., 2017). Each bound is a number, or a tensor with one value per
    token.

    -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A),   at most -dual_clip * A where A < 0
    """
    check_clip(clip_low, clip_high, dual_clip)
    unclipped = ratio * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages  # type: ignore[arg-type]
    loss, clipped = -unclipped.minimum(bounded), bounded < unclipped
    if dual_clip is None:
        return Surrogate(loss, clipped)
    # For negative advantages the loss grows with the ratio without a bound; this caps it.
    cap = -dual_clip * advantages
    capped = (advantages < 0) & (loss > cap)
    return Surrogate(cap.where(capped, loss), clipped | capped)


def check_clip(clip_low: "float | Tensor", clip_high: "float | Tensor", dual_clip: float | None = None) -> None:
    """Raise ValueError if a clip bound is invalid."""
    for name, bound in (("clip_low", clip_low), ("clip_high", clip_high)):
        if isinstance(bound, int | float) and bound < 0:
            raise ValueError(f"{name}={bound}: choose 0 or more.")
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip={dual_clip}: the largest ratio must be above 1; null leaves it out.")
