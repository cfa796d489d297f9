"""What an objective sees, and what it gives."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Tokens(NamedTuple):
    """Tokens that had more than one admissible value, one after the other: whole answers, never part of one.

    They may be any part of a mini-batch, so what crosses answers is not to be had here (see `prepared_by`).

    Attributes:
        logprobs: float32[T], by the weights that are trained; differentiable.
        entropy: float32[T], nats, of the distribution that the token was drawn from; differentiable.
        old_logprobs: float32[T], log-probabilities in the ratio's denominator: the engine's, or the trainer's before
            the update where a correction or the objective asks for them.
        behaviour: float32[T], log-probabilities by the engine that drew the tokens.
        advantages: float32[T].
        sequence_index: int64[T], the answer that the token belongs to: 0, 1, 2, ...
        trajectory: int64[T], the episode, numbered through the whole rollout.
        group: int64[T], the task group, likewise.
        extras: float32[T] each, what was prepared before the update and what the estimator returned beside the
            advantages.
    """

    logprobs: "Tensor"
    entropy: "Tensor"
    old_logprobs: "Tensor"
    behaviour: "Tensor"
    advantages: "Tensor"
    sequence_index: "Tensor"
    trajectory: "Tensor"
    group: "Tensor"
    extras: "Mapping[str, Tensor]"


class Surrogate(NamedTuple):
    """What an objective makes of tokens.

    Attributes:
        loss: float32[T], to be minimised.
        clipped: bool[T], where the objective clips or masks the gradient; its mean is the metric `clip_fraction`.
    """

    loss: "Tensor"
    clipped: "Tensor"
