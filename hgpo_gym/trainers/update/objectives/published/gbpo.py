"""Group bounded policy optimization: a target for the ratio that the estimator returns."""

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, check_clip, distance, log_ratio


def gbpo(tokens: Tokens, *, clip_low: float = 0.3, clip_high: float = 0.3) -> Surrogate:
    """Group Bounded Policy Optimization (Bounded Ratio Reinforcement Learning, 2026, arXiv:2604.18578), after the code.

        L = |A| |r - target|,   target = 1 + (clip_high - clip_low) / 2 + (clip_high + clip_low) (g - 1/2)

    g in [0, 1] is an extra column of the estimator gbpo, with 1/2 for the group's median. `clipped` marks tokens
    past the target, where the gradient turns back.

    Raises:
        ValueError: the estimator is not gbpo.

    Args:
        clip_low: the lowest target is 1 - clip_low; the group's median has 1 where both are equal.
        clip_high: the highest target is 1 + clip_high.
    """
    check_clip(clip_low, clip_high)
    try:
        signal = tokens.extras["target"]
    except KeyError:
        raise ValueError(
            "objective=gbpo takes its targets from the estimator: set algo=gbpo, or objective=bpo for any other."
        ) from None
    target = 1 + (clip_high - clip_low) / 2 + (clip_high + clip_low) * (signal - 0.5)
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    clipped = (ratio - target) * (target - 1) > 0
    return Surrogate(tokens.advantages.abs() * distance(ratio - target), clipped)
