"""PPO's clipped objective."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, clip_ratio, log_ratio


def ppo_clip(
    tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = None
) -> Surrogate:
    """Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347). A larger `clip_high` gives the
    clip-higher of DAPO (arXiv:2503.14476); `dual_clip` gives the dual clip of Ye et al. (arXiv:1912.09729).

        L = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A),   at most -dual_clip A where A < 0

    `clipped` marks tokens at the clip or the cap.

    Args:
        clip_low: lower bound: the ratio is clipped at 1 - clip_low.
        clip_high: upper bound: the ratio is clipped at 1 + clip_high; a larger one is DAPO's clip-higher.
        dual_clip: the largest ratio where the advantage is negative, above 1 (published: 3, 10); None has no limit.
    """
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    return clip_ratio(ratio, tokens.advantages, clip_low, clip_high, dual_clip)
