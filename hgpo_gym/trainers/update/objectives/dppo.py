"""A trust region in probability, not in ratios."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, check_clip, log_ratio


def dppo(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2, cap: float | None = None) -> Surrogate:
    """Divergence Proximal Policy Optimization, by binary total variation (2026, arXiv:2602.04879), after the code of
    prime-rl.

        L = -A r;   0 where A > 0 and pi - mu > clip_high, or A < 0 and pi - mu < -clip_low

    pi and mu, the engine's, are probabilities. With `cap`, value and gradient have min(r, cap) for r. Acts where a
    token is masked or capped.
    """
    check_clip(clip_low, clip_high)
    if cap is not None and cap <= 0:
        raise ValueError(f"cap={cap}: the largest ratio must be above 0; null leaves it out.")
    logprobs, advantages = tokens.logprobs, tokens.advantages
    moved = logprobs.detach().exp() - tokens.behaviour.exp()
    masked = ((advantages > 0) & (moved > clip_high)) | ((advantages < 0) & (moved < -clip_low))
    ratio = log_ratio(logprobs, tokens.old_logprobs).exp()
    if cap is None:
        return Surrogate(-advantages * ratio * ~masked, masked)
    capped = ratio.detach().clamp(max=cap)
    loss = -advantages * capped * (logprobs - logprobs.detach()).exp() * ~masked
    return Surrogate(loss, masked | (capped != ratio))
