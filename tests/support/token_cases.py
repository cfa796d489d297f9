"""Objectives with the options that they need, and answers for them to see."""

import torch

from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.objectives import Tokens
from hgpo_gym.trainers.update.objectives.bound import bind_objective

NEEDED = {
    "hispo": {"delta_sequence": 0.3, "delta_token": 0.3},
    "capo": {"learning_rate": 0.01, "tau_fisher": 0.01, "tau_hessian": 0.1},
    "clip_cov": {"share": 0.1, "low": -1.0},
    "kl_cov": {"share": 0.1},
}
"""Options without a default, and those with which tokens of a small batch are chosen and left alone."""


def choice(name, **options):
    return bind_objective(Choice(name, {**NEEDED.get(name, {}), **options}))


def gradient_of(loss, tokens):
    (gradient,) = torch.autograd.grad(loss, tokens.logprobs, allow_unused=True)
    return torch.zeros_like(tokens.logprobs) if gradient is None else gradient


def responses_of(lengths, advantages, difference, **columns):
    """Responses of these lengths with log-ratios float64[T], engines equal."""
    record = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    start = torch.linspace(-3, -0.5, len(record), dtype=torch.float64)
    difference = torch.as_tensor(difference, dtype=torch.float64)
    extras = {name: torch.as_tensor(values, dtype=torch.float64) for name, values in columns.items()}
    return Tokens(
        logprobs=(start + difference).requires_grad_(),
        entropy=-start,
        old_logprobs=start,
        behaviour=start,
        advantages=torch.tensor(advantages, dtype=torch.float64)[record],
        sequence_index=record,
        trajectory=record,
        group=record,
        extras=extras,
    )
