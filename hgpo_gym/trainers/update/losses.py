"""Token-level objectives. Every function takes one entry a token and leaves the averaging to `aggregate`."""

from typing import NamedTuple

import torch

from hgpo_gym.suggest import unknown_name

AGGREGATIONS = ("token_mean", "sequence_mean")
CORRECTIONS = ("none", "token", "sequence")


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


def importance_weights(
    old: torch.Tensor, behaviour: torch.Tensor, record: torch.Tensor, cap: float, how: str
) -> torch.Tensor:
    """Truncated importance sampling (Ionides, 2008), for tokens that were drawn by an engine whose probabilities differ
    from the trainer's although the weights are the same (Yao et al., 2025, "Your efficient RL framework secretly brings
    you off-policy RL training").

        token:      w_t = min(exp(old_t - behaviour_t), cap)
        sequence:   w_t = min(exp(sum over the answer's tokens of (old - behaviour)), cap)

    The answer's weight makes the gradient unbiased but for the cap; the token's has less variance in long answers.

    Args:
        old: float32[T], by the trainer, before the update.
        behaviour: float32[T], by the engine, as recorded.
        record: int64[T], the answer that each token belongs to; every answer whole.
        cap: the largest weight.
        how: `token` or `sequence`; `none` gives ones.

    Returns float32[T], without gradient.
    """
    difference = (old - behaviour).detach()
    if how == "none":
        return torch.ones_like(difference)
    if how == "sequence":
        answers = difference.new_zeros(int(record.max()) + 1).index_add(0, record, difference)
        difference = answers[record]
    elif how != "token":
        raise ValueError(unknown_name("importance_correction", how, CORRECTIONS))
    return difference.exp().clamp(max=cap)


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
