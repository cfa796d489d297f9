"""Drawing tokens from logits, and the likelihood of what was drawn."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from hgpo_gym.policies.base import CannotAnswerError, Sampling

NOT_NUMBERS = (
    "The policy's probabilities are not numbers: its weights have diverged or are damaged. Go on from an earlier "
    "checkpoint, or train anew with a smaller trainer.learning_rate."
)


def restrict(logits: torch.Tensor, allowed: Sequence[np.ndarray | None]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The logits [rows, vocabulary] of the allowed tokens alone, and their ids int64[rows, A].

    Rows with fewer than A tokens are filled up with -inf. An entry None allows all of a row's tokens; where all are
    None, the logits come back as they are, with None for the ids.
    """
    if all(ids is None for ids in allowed):
        return logits, None
    everything = np.arange(logits.shape[1])
    ids, own = pad([everything if ids is None else ids for ids in allowed])
    columns = torch.from_numpy(ids).to(logits.device)
    others = torch.from_numpy(~own).to(logits.device)
    return logits.gather(1, columns).masked_fill(others, float("-inf")), columns


def pad(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows int64 of different lengths as one array [rows, longest], filled up with 0, and what is their own."""
    lengths = np.array([len(row) for row in rows])
    own = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(own.shape, dtype=np.int64)
    padded[own] = np.concatenate(rows)
    return padded, own


def draw(logits: torch.Tensor, sampling: Sampling, uniforms: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for every row of logits [rows, vocabulary] by a uniform number in [0, 1) each.

    Returns int64[rows] and their log-probabilities float32[rows], before `top_p` leaves tokens out. Raises
    CannotAnswerError where logits are not numbers.
    """
    logprobs = torch.log_softmax(logits / (sampling.temperature or 1.0), dim=-1)
    if sampling.temperature == 0:
        tokens = logits.argmax(dim=-1)
    else:
        targets = torch.from_numpy(uniforms).to(logits.device)
        tokens = _inverse_cdf(_nucleus(logprobs, sampling.top_p), targets)
    drawn = logprobs.gather(1, tokens.clamp_max(logits.shape[1] - 1)[:, None])[:, 0]
    if torch.isnan(drawn).any():
        raise CannotAnswerError(NOT_NUMBERS)
    return tokens, drawn


class Drawn(NamedTuple):
    """Log-probabilities float32[T] of drawn tokens, and the entropies float32[T] of what they were drawn from, nats."""

    logprobs: torch.Tensor
    entropy: torch.Tensor


def likelihood_of_drawn(logits: torch.Tensor, tokens: torch.Tensor) -> Drawn:
    """The likelihood of the tokens int64[T] under logits [T, vocabulary], -inf where a token was not allowed."""
    logprobs = torch.log_softmax(logits, dim=-1)
    finite = logprobs.masked_fill(torch.isneginf(logprobs), 0.0)
    return Drawn(logprobs.gather(1, tokens[:, None])[:, 0], -(logprobs.exp() * finite).sum(-1))


def power_sums(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32[T] each: the sums of p^2 and of p^3 over the tokens of logits [T, vocabulary]."""
    probabilities = torch.softmax(logits, dim=-1)
    squares = probabilities.square()
    return squares.sum(-1), (squares * probabilities).sum(-1)


def uniform_numbers(seed: tuple[int, ...], count: int) -> np.ndarray:
    """float64[count] in [0, 1), the same for the same seed."""
    return np.random.default_rng(seed).random(count)


def _nucleus(logprobs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Probabilities float64[rows, vocabulary], zero outside the likeliest tokens that reach `top_p` together."""
    probabilities = logprobs.double().exp()
    if top_p == 1:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True)
    ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
    return torch.zeros_like(probabilities).scatter(1, order, ordered)


def _inverse_cdf(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """int64[rows]: the token at which the cumulative probability passes the row's uniform number."""
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1]
    # Strictly below the total, so that rounding cannot pick a token of probability 0 at the end.
    targets = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, targets[:, None], right=True)[:, 0]
