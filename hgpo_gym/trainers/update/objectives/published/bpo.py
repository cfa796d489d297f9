"""Bounded policy optimization: a target for the ratio in place of a clip."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, by_sign, check_clip, distance, log_ratio


def bpo(tokens: Tokens, *, clip_low: float = 0.3, clip_high: float = 0.3) -> Surrogate:
    """Bounded Policy Optimization (Bounded Ratio Reinforcement Learning, 2026, arXiv:2604.18578), after the paper.

        L = |A| |r - target|,   target = 1 + clip_high where A > 0, 1 - clip_low where A < 0

    Past the target the gradient turns back. This counts as clipped.

    Args:
        clip_low: the target is 1 - clip_low where the advantage is negative.
        clip_high: the target is 1 + clip_high where the advantage is positive.
    """
    check_clip(clip_low, clip_high)
    target = by_sign(tokens.advantages, 1 + clip_high, 1 - clip_low)
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    clipped = (ratio - target) * (target - 1) > 0
    return Surrogate(tokens.advantages.abs() * distance(ratio - target), clipped)
