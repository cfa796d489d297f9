"""A budget for the drift of a response, and a clip for each token's contribution."""

import torch

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, by_sign, log_ratio, prefers, response_mean


@prefers("sequence_mean")
def fiberpo(
    tokens: Tokens,
    *,
    epsilon_positive: float = 0.2,
    epsilon_negative: float = 0.2,
    delta: float = 0.4,
    share_positive: float = 0.5,
) -> Surrogate:
    """Fiber Policy Optimization (2026, arXiv:2603.08239), after the authors' code and the paper.

        L = -w exp(clip(u, +-epsilon) - clip(v, +-epsilon)) A,   w = exp(g(s+) - g(s-))
        s+ = sum of d over d >= 0, s- = sum of -d over d < 0, both divided by the n tokens of the response
        u = d - l s(l),   v = -l s(-l),   l = +1 where d >= 0, else -1
        g(x) = x up to the budget C, then (n + 1) C - n x down to 0 at (1 + 1/n) C, then 0

    C is `share_positive` of delta for s+ and the rest for s-; epsilon depends on the sign of A. Without clipping the
    factor of A is r. `clipped` marks tokens where u or v is clipped, or a budget is used up.

    Args:
        epsilon_positive: clip of a token's own log-ratio where the advantage is positive.
        epsilon_negative: clip of a token's own log-ratio where the advantage is negative.
        delta: budget of a response, of mean |log-ratio|; the paper wants it much larger than the clip.
        share_positive: the share of the budget for tokens that have become likelier; the rest is for the others.
    """
    if not 0 <= share_positive <= 1:
        raise ValueError(f"share_positive={share_positive}: a share of the budget, 0 to 1.")
    for name, value in (("epsilon_positive", epsilon_positive), ("epsilon_negative", epsilon_negative)):
        if value < 0:
            raise ValueError(f"{name}={value}: choose 0 or more.")
    if delta <= 0:
        raise ValueError(f"delta={delta}: the budget of a response must be above 0.")
    difference = log_ratio(tokens.logprobs, tokens.old_logprobs)
    is_rise = difference >= 0  # a token at 0 belongs to this side only, which gives it a gradient
    zero = torch.zeros_like(difference)
    up = response_mean(torch.where(is_rise, difference, zero), tokens.sequence_index)
    down = response_mean(torch.where(is_rise, zero, -difference), tokens.sequence_index)
    residual = torch.where(is_rise, difference - up, difference + down)
    opposite = torch.where(is_rise, -down, up)
    epsilon = by_sign(tokens.advantages, epsilon_positive, epsilon_negative)
    budget_up, budget_down = share_positive * delta, (1 - share_positive) * delta
    length = tokens.sequence_index.bincount()[tokens.sequence_index].to(difference.dtype)
    gate = (_within(up, budget_up, length) - _within(down, budget_down, length)).exp()
    loss = -gate * (residual.clamp(-epsilon, epsilon) - opposite.clamp(-epsilon, epsilon)).exp() * tokens.advantages
    clipped = (residual.abs() > epsilon) | (opposite.abs() > epsilon) | (up > budget_up) | (down > budget_down)
    return Surrogate(loss, clipped)


def _within(drift: torch.Tensor, budget: float, length: torch.Tensor) -> torch.Tensor:
    """Return g: the drift within the budget, then steeply back to 0."""
    return_path = ((length + 1) * budget - length * drift).clamp(min=0)
    return torch.where(drift <= budget, drift, return_path)
