"""The input and the result of an objective."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Tokens(NamedTuple):
    """Tokens that had more than one admissible value, concatenated. Responses are complete, never split.

    They may be any part of a mini-batch, so statistics across responses are not available here (see `prepared_by`).

    Attributes:
        logprobs: float32[T], by the weights that are trained; differentiable.
        entropy: float32[T], nats, of the distribution that the token was drawn from; differentiable.
        old_logprobs: float32[T], log-probabilities in the ratio's denominator: the engine's, or the trainer's before
            the update where a correction or the objective asks for them.
        behaviour: float32[T], log-probabilities by the engine that drew the tokens.
        advantages: float32[T].
        sequence_index: int64[T], the response that the token belongs to: 0, 1, 2, ...
        trajectory: int64[T], the episode, numbered through the whole rollout.
        group: int64[T], the task group, numbered in the same way.
        extras: float32[T] each, the columns of the pre-pass and the estimator's extra columns.
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
    """The result of an objective.

    Attributes:
        loss: float32[T], to be minimised.
        clipped: bool[T], where the objective clips or masks the gradient; its mean is the metric `clip_fraction`.
    """

    loss: "Tensor"
    clipped: "Tensor"
