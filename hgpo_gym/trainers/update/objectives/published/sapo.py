"""A soft gate in place of a clip."""

import torch

from hgpo_gym.trainers.update.objectives import Surrogate, Tokens, by_sign, log_ratio, prefers


@prefers("sequence_mean")
def sapo(tokens: Tokens, *, tau_positive: float = 1.0, tau_negative: float = 1.05) -> Surrogate:
    """Soft Adaptive Policy Optimization (Qwen, 2025, arXiv:2511.20347), after verl's code.

        L = -(4 / tau) sigmoid(tau (r - 1)) A,   tau = tau_positive where A > 0, else tau_negative

    At r = 1 the loss is -2 A / tau and the gradient -A. It fades smoothly to both sides, so `clipped` is never set.

    Args:
        tau_positive: how sharply the gate closes where the advantage is positive.
        tau_negative: how sharply the gate closes where the advantage is negative.
    """
    for name, value in (("tau_positive", tau_positive), ("tau_negative", tau_negative)):
        if value <= 0:
            raise ValueError(f"{name}={value}: the temperature of the gate must be above 0.")
    tau = by_sign(tokens.advantages, tau_positive, tau_negative)
    ratio = log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    loss = -4 / tau * torch.sigmoid(tau * (ratio - 1)) * tokens.advantages
    return Surrogate(loss, torch.zeros_like(tokens.sequence_index, dtype=torch.bool))
