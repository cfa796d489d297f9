"""From token losses to the loss of a mini-batch."""

from typing import TYPE_CHECKING, NamedTuple

from hgpo_gym.suggest import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATIONS = ("token_mean", "sequence_mean", "sequence_sum")


class Totals(NamedTuple):
    """What a mini-batch counts in all: the tokens that are kept in its means, and its answers."""

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
    """The mean of token values over a mini-batch, of which these tokens may be a part.

    Parts add up to the whole: `totals` counts the whole mini-batch, so a split into micro-batches changes nothing.
    Tokens that are not kept leave the sums and the counts; an answer that keeps none is an answer all the same.

        token_mean:     each token counts once
        sequence_mean:  the mean of the answers' means: each answer counts once
        sequence_sum:   sum / (answers * constant): each token counts once, however many there are (Dr. GRPO,
                        arXiv:2503.20783)

    Args:
        values: float32[T].
        sequence_index: int64[T], the answer that each token belongs to; every answer whole.
        totals: of the whole mini-batch.
        how: one of `AGGREGATIONS`.
        loss_mask: float32[T], 1 for tokens that are kept and 0 for the others; None keeps all.
        constant: the divisor of sequence_sum.
    """
    if loss_mask is not None:
        values = values * loss_mask
    if how == "token_mean":
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
