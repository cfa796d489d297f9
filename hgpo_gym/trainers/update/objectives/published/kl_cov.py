"""A KL term instead of a clip, for a few tokens that drive entropy down."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hgpo_gym.trainers.update.objectives import Prepared, Surrogate, Tokens, distance, log_ratio, prepared_by
from hgpo_gym.trainers.update.objectives.covariance import count_of, covariances, selected

if TYPE_CHECKING:
    from hgpo_gym.trainers.update.samples import TrainingSample


def prepare(rows: "Sequence[TrainingSample]", _: np.random.Generator, *, share: float = 2e-4) -> Prepared:
    """Choose the max(1, int(share * T)) tokens with the largest covariance. On ties, earlier tokens come first."""
    covariance = covariances(rows)
    return selected(rows, np.argsort(-covariance, kind="stable")[: count_of(share, len(covariance))])


@prepared_by(prepare)
def kl_cov(tokens: Tokens, *, coef: float = 1.0) -> Surrogate:
    """KL-Cov (Cui et al., 2025, arXiv:2505.22617), after verl's code.

        L = -A r, for the chosen tokens + coef |d|

    d is the log-ratio, so the term is 0 before the first step. `clipped` marks the chosen tokens.

    Args:
        coef: weight of the KL term.
        share: the share of all tokens that have the KL term, at least one.
    """
    if coef < 0:
        raise ValueError(f"coef={coef}: choose 0 or more.")
    difference = log_ratio(tokens.logprobs, tokens.old_logprobs)
    chosen = tokens.extras["selected"] > 0
    return Surrogate(-tokens.advantages * difference.exp() + coef * distance(difference) * chosen, chosen)
