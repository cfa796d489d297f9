"""Clips and advantages that depend on a token's entropy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from hgpo_gym.trainers.update.objectives import (
    Prepared,
    Surrogate,
    Tokens,
    check_clip,
    clip_ratio,
    log_ratio,
    prepared_by,
)

if TYPE_CHECKING:
    from hgpo_gym.trainers.update.samples import TrainingSample

SMALLEST_ENTROPY = 1e-8


def entropy_scale(entropy: np.ndarray, quantile: float, *, released: bool = False) -> np.ndarray:
    """Return h, float64[T]: -1 for the lowest entropy, 0 for the pivot, 1 for the highest.

        e = log max(H, 1e-8),   pivot = e at the quantile,   h = (e - pivot) / rms of (e - pivot),
        then divided by the largest where h > 0, and by the |smallest| where h < 0

    `released` divides by the smallest itself, as the published code does: the lowest entropy then has +1.
    """
    logs = np.log(np.maximum(entropy.astype(np.float64), SMALLEST_ENTROPY))
    pivot = np.sort(logs)[round(quantile * (len(logs) - 1))]
    scale = logs - pivot
    # Equal entropies have no scale, and the division below would be 0 / 0.
    if np.ptp(logs) <= 1e-10 * max(1.0, np.abs(logs).max()):
        return np.zeros_like(scale)
    scale /= np.sqrt(np.mean(scale**2))
    largest, smallest = scale.max(), scale.min()
    above, below = scale > 0, scale < 0
    scale[above] /= largest
    scale[below] /= smallest if released else -smallest
    return scale


def prepare(
    rows: "Sequence[TrainingSample]", _: np.random.Generator, *, quantile: float = 0.8, released: bool = False
) -> Prepared:
    """Compute h of all tokens from their entropies before the update."""
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile={quantile}: a share, 0 to 1.")
    entropies = [row.before["entropy"] for row in rows]
    scale = entropy_scale(np.concatenate(entropies), quantile, released=released)
    offsets = np.cumsum([len(values) for values in entropies])[:-1]
    return Prepared([{"entropy_scale": values} for values in np.split(scale, offsets)])


@prepared_by(prepare, reads=("entropy",))
def hapo(
    tokens: Tokens,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    clip_alpha: float = 1.0,
    advantage_beta: float = 1.0,
    dual_clip: float | None = 10.0,
) -> Surrogate:
    """HAPO ("From Uniform to Heterogeneous", 2025), after its code, with the sign of its abstract.

        PPO's clip, where h > 0 with clip_high (1 + clip_alpha h), where h <= 0 with clip_low (1 - clip_alpha h),
        A' = A (1 + advantage_beta h) in place of A: where h > 0 outside of the zone in which the ratio has moved by
        less than half of the clip, where h <= 0 inside of it

    h is a token's entropy before the update, on a scale from -1 to 1. `clipped` marks tokens at the clip or the cap.

    Args:
        clip_low: PPO's lower bound at the pivot's entropy.
        clip_high: PPO's upper bound at the pivot's entropy.
        clip_alpha: how much wider the upper bound is at the highest entropy, and the lower bound at the lowest: 1 is
            twice as wide.
        advantage_beta: how much larger the advantage is at the highest entropy, and how much smaller at the lowest: 1
            is twice, and nothing.
        dual_clip: the largest ratio where the advantage is negative, above 1; None has no limit.
        quantile: the pivot: the entropy with this share of tokens below it.
        released: low entropies have the sign of the published code, which is that of high ones.
    """
    check_clip(clip_low, clip_high)  # the bounds below are per token, which `check_clip` does not check
    if clip_alpha < -1:
        raise ValueError(f"clip_alpha={clip_alpha}: below -1 it turns bounds round; 0 makes them alike.")
    scale = tokens.extras["entropy_scale"]
    high = scale > 0
    low_bound = torch.where(high, clip_low, clip_low * (1 - clip_alpha * scale)).to(scale.dtype)
    high_bound = torch.where(high, clip_high * (1 + clip_alpha * scale), clip_high).to(scale.dtype)
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    near_one = (1 - low_bound / 2 < ratio.detach()) & (ratio.detach() < 1 + high_bound / 2)
    scaled = tokens.advantages * (1 + advantage_beta * scale)
    advantages = torch.where(near_one ^ high, scaled, tokens.advantages)
    return clip_ratio(ratio, advantages, low_bound, high_bound, dual_clip)
