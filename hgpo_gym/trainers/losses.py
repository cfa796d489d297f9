"""Token-level objectives. Every function takes one entry a token and leaves the averaging to `aggregate`."""

from typing import NamedTuple

import torch

from hgpo_gym.suggest import unknown_name

AGGREGATIONS = ("token_mean", "sequence_mean")


class Totals(NamedTuple):
    """What a mini-batch counts in all."""

    tokens: int
    sequences: int


def clipped_surrogate(
    logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's clipped objective (Schulman et al., 2017) with separate bounds, as a loss.

        -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A),   ratio = exp(logprobs - behaviour)

    Returns the loss float32[T] and bool[T], where clipping took the gradient away.
    """
    ratio = torch.exp(logprobs - behaviour)
    free = ratio * advantages
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return -torch.minimum(free, clipped), clipped < free


def kl_k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """float32[T]: KL(policy | reference) by the estimator k3 (Schulman, 2020), exp(d) - d - 1 with d = log(ref / pi).

    Never negative, unbiased for tokens drawn from the policy.
    """
    difference = reference - logprobs
    return torch.exp(difference) - difference - 1


def aggregate(values: torch.Tensor, record: torch.Tensor, totals: Totals, how: str) -> torch.Tensor:
    """The mean of token values over a mini-batch, of which these tokens may be a part.

    Parts add up to the whole: `totals` counts the whole mini-batch, so a split into micro-batches changes nothing.

    Args:
        values: float32[T].
        record: int64[T], the answer that each token belongs to.
        totals: tokens and answers of the whole mini-batch.
        how: `token_mean`, each token counts once, or `sequence_mean`, each answer counts once.
    """
    if how == "token_mean":
        return values.sum() / totals.tokens
    if how == "sequence_mean":
        lengths = torch.bincount(record)
        return (values / lengths[record]).sum() / totals.sequences
    raise ValueError(unknown_name("loss_aggregation", how, AGGREGATIONS))
