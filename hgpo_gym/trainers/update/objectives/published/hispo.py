"""Masks of responses and tokens where engine and trainer disagree."""

from hgpo_gym.trainers.update.objectives import (
    Surrogate,
    Tokens,
    clip_ratio,
    log_ratio,
    needs_old,
    prefers,
    response_mean,
)


@needs_old
@prefers("sequence_sum")
def hispo(
    tokens: Tokens,
    *,
    delta_sequence: float,
    delta_token: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Surrogate:
    """Hierarchical Importance Sampling Policy Optimization (LongCat-Flash-Prover, 2026, arXiv:2603.21065, eq. 8 and 9).

        L = H_t times PPO's clip of the full ratio pi / mu
        H_t = [|exp(mean_j log(old_j / mu_j)) - 1| < delta_sequence] [|old_t / mu_t - 1| < delta_token]

    mu is the engine, old the trainer before the update. The paper's triplet of bounds is read as the two clips and
    the dual clip. The paper publishes neither them nor the thresholds. `clipped` marks masked and clipped tokens.

    Args:
        delta_sequence: a response counts where the geometric mean of trainer / engine is closer to 1 than this; not
            published.
        delta_token: a token counts where trainer / engine is closer to 1 than this; not published.
        clip_low: the ratio to the engine is clipped at 1 - clip_low; not published.
        clip_high: the ratio to the engine is clipped at 1 + clip_high; not published.
        dual_clip: the largest ratio where the advantage is negative, above 1; None has no limit.
    """
    for name, value in (("delta_sequence", delta_sequence), ("delta_token", delta_token)):
        if value <= 0:
            raise ValueError(f"{name}={value}: the largest |ratio - 1| that is let through, above 0.")
    mismatch = log_ratio(tokens.old_logprobs, tokens.behaviour)
    response_ratio = response_mean(mismatch, tokens.sequence_index).exp()
    loss_mask = ((response_ratio - 1).abs() < delta_sequence) & ((mismatch.exp() - 1).abs() < delta_token)
    ratio = log_ratio(tokens.logprobs, tokens.behaviour).exp()
    loss, clipped = clip_ratio(ratio, tokens.advantages, clip_low, clip_high, dual_clip)
    return Surrogate(loss * loss_mask, clipped | ~loss_mask)
