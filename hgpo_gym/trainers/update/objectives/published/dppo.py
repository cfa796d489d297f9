"""A trust region on probabilities instead of ratios."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, check_clip, log_ratio


def dppo(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2, cap: float | None = None) -> Surrogate:
    """Divergence Proximal Policy Optimization, by binary total variation (2026, arXiv:2602.04879), after the code of
    prime-rl.

        L = -A r;   0 where A > 0 and pi - mu > clip_high, or A < 0 and pi - mu < -clip_low

    pi and mu are probabilities; mu is the engine's. With `cap`, value and gradient use min(r, cap) in place of r.
    `clipped` marks masked and capped tokens.

    Args:
        clip_low: mask tokens of negative advantage that are rarer than the engine had them by more than this.
        clip_high: mask tokens of positive advantage that are likelier than the engine had them by more than this.
        cap: the largest ratio (published: 20); None has no limit.
    """
    check_clip(clip_low, clip_high)
    if cap is not None and cap <= 0:
        raise ValueError(f"cap={cap}: the largest ratio must be above 0; null leaves it out.")
    logprobs, advantages = tokens.logprobs, tokens.advantages
    change = logprobs.detach().exp() - tokens.behaviour.exp()
    masked = ((advantages > 0) & (change > clip_high)) | ((advantages < 0) & (change < -clip_low))
    ratio = log_ratio(logprobs, tokens.old_logprobs).exp()
    if cap is None:
        return Surrogate(-advantages * ratio * ~masked, masked)
    capped = ratio.detach().clamp(max=cap)
    # The factor exp(logprobs - logprobs) is 1 and gives the capped ratio its gradient.
    loss = -advantages * capped * (logprobs - logprobs.detach()).exp() * ~masked
    return Surrogate(loss, masked | (capped != ratio))
