"""Aggregate token losses to the loss of a mini-batch."""

from typing import TYPE_CHECKING, NamedTuple

from hgpo_gym.suggest import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATIONS = ("token_mean", "sequence_mean", "sequence_sum")


class Totals(NamedTuple):
    """The totals of a mini-batch: the tokens that count in its means, and its responses."""

    tokens: int
    sequences: int


def aggregate(
    values: "Tensor",
    sequence_index: "Tensor",
    totals: Totals,
    how: str,
    loss_mask: "Tensor | None" = None,
    constant: float | None = None,
) -> "Tensor":
    """Return the mean of token values over a mini-batch. The tokens may be a part of that mini-batch.

    Parts add up to the whole: `totals` counts the whole mini-batch, so micro-batches change nothing. Masked tokens
    leave the sums and the counts. A response with no token left still counts as a response.

        token_mean:     each token counts once
        sequence_mean:  the mean of the responses' means: each response counts once
        sequence_sum:   sum / (responses * constant): each token counts once, however many there are (Dr. GRPO,
                        arXiv:2503.20783)

    Args:
        values: float32[T].
        sequence_index: int64[T], the response that each token belongs to; responses are complete.
        totals: of the whole mini-batch.
        how: one of `AGGREGATIONS`.
        loss_mask: float32[T], 1 for tokens that count and 0 for the others; None counts all.
        constant: the divisor of sequence_sum.
    """
    # The mask enters the sum here and the counts below: both must leave out the same tokens.
    if loss_mask is not None:
        values = values * loss_mask
    if how == "token_mean":
        # A mini-batch may have no token left, and 0 / 0 would be NaN.
        return values.sum() / max(1, totals.tokens)
    if how == "sequence_mean":
        lengths = (
            sequence_index.bincount()
            if loss_mask is None
            else sequence_index.bincount(loss_mask).clamp(min=1).to(values.dtype)
        )
        return (values / lengths[sequence_index]).sum() / totals.sequences
    if how == "sequence_sum":
        if constant is None:
            raise ValueError("loss_aggregation=sequence_sum divides by a constant: set trainer.loss_constant.")
        return values.sum() / (totals.sequences * constant)
    raise ValueError(unknown_name("loss_aggregation", how, AGGREGATIONS))
