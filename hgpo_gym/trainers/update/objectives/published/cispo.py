"""A clipped weight that keeps the gradient of every token."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, check_clip, log_ratio


def cispo(tokens: Tokens, *, clip_low: float = 1.0, clip_high: float = 0.2, cap: float | None = None) -> Surrogate:
    """Clipped Importance Sampling Policy Optimization (MiniMax, 2025, arXiv:2506.13585), after verl's code.

        L = -sg(w) A log pi,   w = clip(r, 1 - clip_low, 1 + clip_high), or min(r, cap) where `cap` is given

    A `clip_low` of 1 is no lower bound. `clipped` marks tokens where w differs from r. The loss is not a surrogate:
    only its gradient has a meaning.

    Args:
        clip_low: lower bound: the weight is clipped at 1 - clip_low; 1 is no bound.
        clip_high: upper bound: the weight is clipped at 1 + clip_high.
        cap: the largest weight in place of both bounds (published: 5.0); None takes the bounds.
    """
    check_clip(clip_low, clip_high)
    if cap is not None and cap <= 0:
        raise ValueError(f"cap={cap}: the largest weight must be above 0; null takes the clip.")
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).detach().exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high) if cap is None else ratio.clamp(max=cap)
    return Surrogate(-weight * tokens.advantages * tokens.logprobs, weight != ratio)
