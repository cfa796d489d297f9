"""PPO's clip without a few tokens that drive entropy down."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hgpo_gym.trainers.update.objectives import Prepared, Surrogate, Tokens, clip_ratio, log_ratio, prepared_by
from hgpo_gym.trainers.update.objectives.covariance import count_of, covariances, selected

if TYPE_CHECKING:
    from hgpo_gym.trainers.update.samples import TrainingSample


def prepare(
    rows: "Sequence[TrainingSample]",
    generator: np.random.Generator,
    *,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
) -> Prepared:
    """Draw max(1, int(share * T)) tokens with a covariance between `low` and `high`."""
    if not low < high:
        raise ValueError(f"low={low}, high={high}: bounds of the covariance, low < high.")
    covariance = covariances(rows)
    candidates = np.flatnonzero((covariance > low) & (covariance < high))
    count = min(count_of(share, len(covariance)), len(candidates))
    return selected(rows, generator.choice(candidates, count, replace=False))


@prepared_by(prepare)
def clip_cov(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Surrogate:
    """Clip-Cov (Cui et al., 2025, arXiv:2505.22617), after verl's code.

        L = 0 for the chosen tokens, else PPO's clip

    It chooses a few tokens whose advantage and log-probability are high together. `clipped` marks chosen and clipped
    tokens.

    Args:
        clip_low: lower bound: the ratio is clipped at 1 - clip_low.
        clip_high: upper bound: the ratio is clipped at 1 + clip_high.
        share: the share of all tokens that are left out, at least one.
        low: draw them among tokens with a covariance above this.
        high: draw them among tokens with a covariance below this.
    """
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    loss, clipped = clip_ratio(ratio, tokens.advantages, clip_low, clip_high)
    chosen = tokens.extras["selected"] > 0
    return Surrogate(loss.masked_fill(chosen, 0.0), clipped | chosen)
