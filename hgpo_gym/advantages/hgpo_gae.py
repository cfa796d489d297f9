"""Generalized advantage estimation with HGPO's hierarchy of groups as the critic."""

from dataclasses import replace
from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.hgpo import hgpo
from hgpo_gym.advantages.statistics import check_shares, over_unique_steps, scaled_to_group, sum_of_later


def hgpo_gae(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    trace_decay: float = 0.5,
    norm: str = "mean_std_norm",
    history_length: int | None = None,
    length_weight_alpha: float = 1.0,
    weights: str = "paper",
) -> np.ndarray:
    """HGPO with generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438).

    HGPO's advantage a_t = G_t - b_t has a baseline b_t, the weighted mean return of the steps that share t's history.
    This estimator uses b as the critic and trace_decay as lambda:

        A_t = sum_l (gamma * lambda)^l (r_{t+l} + gamma * b_{t+l+1} - b_{t+l})
            = a_t - gamma * (1 - lambda) * sum_{l >= 1} (gamma * lambda)^(l - 1) a_{t+l}

    With lambda = 1 it is HGPO. Smaller values remove more of the luck of later steps (less variance). They rely more on
    equal contexts having equal values (more bias where they differ). docs/methods/bias.md has measurements. Family:
    rewards with a critic.

    Args:
        batch: the steps, with context keys at least up to level K.
        gamma: discount of the step returns G_t.
        trace_decay: lambda, from 0 to 1.
        norm: `mean_norm`, or `mean_std_norm`, which divides by the root mean square of the task group's advantages.
        history_length: K; None uses every level of the batch.
        length_weight_alpha: alpha; 0 weighs all levels alike.
        weights: `paper`, or `released` with (k + 2)^alpha.

    Returns float64[N]; a step with a unique observation gets 0. Raises ValueError on an unknown name, a gamma or
    trace_decay outside [0, 1], or a `history_length` that the batch has no keys for.
    """
    check_shares(trace_decay=trace_decay)
    hierarchy = partial(
        hgpo,
        gamma=gamma,
        norm="mean_norm",
        history_length=history_length,
        length_weight_alpha=length_weight_alpha,
        weights=weights,
    )
    hgpo_advantages = hierarchy(batch)
    # A penalty belongs to its step alone, so the correction by later steps leaves it out.
    later = hierarchy(replace(batch, penalty=np.zeros(len(batch)))) if batch.penalty.any() else hgpo_advantages
    advantages = hgpo_advantages - gamma * (1 - trace_decay) * sum_of_later(batch, later, gamma * trace_decay)
    advantages[batch.visits(batch.key_groups(level=0)) == 1] = 0.0
    return over_unique_steps(batch, partial(scaled_to_group, norm=norm), advantages, batch.group_labels)
