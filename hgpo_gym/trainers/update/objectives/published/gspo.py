"""One ratio for a whole response."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, clip_ratio, log_ratio, prefers, response_mean


@prefers("sequence_mean")
def gspo(tokens: Tokens, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Surrogate:
    """Group Sequence Policy Optimization (Zheng et al., 2025, arXiv:2507.18071), after verl's code.

        L = -min(q A, clip(q, 1 - clip_low, 1 + clip_high) A),   log q_t = sg(mean_j d_j) + log pi_t - sg(log pi_t)

    d is the log-ratio, and sg stops the gradient. The tokens of a response share one ratio, the geometric mean of
    theirs, and are clipped together. The bounds are the paper's, for thousands of tokens.

    Args:
        clip_low: lower bound of the response's ratio, 1 - clip_low, as published for thousands of tokens; responses of
            three tokens learned by 0.2.
        clip_high: upper bound of the response's ratio, 1 + clip_high.
    """
    logprobs = tokens.logprobs
    mean = response_mean(log_ratio(logprobs, tokens.old_logprobs).detach(), tokens.sequence_index)
    return clip_ratio((mean + (logprobs - logprobs.detach())).exp(), tokens.advantages, clip_low, clip_high)
