"""The geometric mean of a response's clipped ratios."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, check_clip, log_ratio, prefers, response_mean


@prefers("sequence_mean")
def gmpo(tokens: Tokens, *, clip_low: float = 0.4, clip_high: float = 0.4) -> Surrogate:
    """Geometric-Mean Policy Optimization (Zhao et al., 2025, arXiv:2507.20673), after verl's code.

        L = -A exp(mean_t m_t),   m_t = s min(s d_t, s clip(d_t, -clip_low, clip_high)),   s = sign A

    The bounds apply to the log-ratio d. Every token of a response has the response's loss.

    Args:
        clip_low: a token's log-ratio is clipped at -clip_low.
        clip_high: a token's log-ratio is clipped at clip_high.
    """
    check_clip(clip_low, clip_high)
    difference = log_ratio(tokens.logprobs, tokens.old_logprobs)
    sign = tokens.advantages.sign()
    # Multiply by the sign first, so that the minimum is pessimistic for both signs.
    unclipped, bounded = sign * difference, sign * difference.clamp(-clip_low, clip_high)
    mean = response_mean(sign * unclipped.minimum(bounded), tokens.sequence_index)
    return Surrogate(-tokens.advantages * mean.exp(), bounded < unclipped)
