"""Generalized advantages over a task group's table of values."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import (
    check_shares,
    mean_of_group,
    over_unique_steps,
    relative_to_group,
    sum_of_later,
)
from hgpo_gym.advantages.values import generalized_advantages


def gagpo(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    trace_decay: float = 0.8,
    norm: str = "mean_std_norm",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """GAGPO (arXiv:2605.13217): generalized advantages with the mean return of a state's visits as the critic.

    Advantages are compared over all steps of the task group. There is no episode term.

        V(s) = mean(G over the visits of s, own included),   delta_t = r_t + gamma V(s_{t+1}) - V(s_t),
        B_t = delta_t + gamma lambda B_{t+1},   A = (B - mean) / (std + 1e-6) over the task group - p

    with V = 0 after the end, the deviation's n - 1, and p the step's penalty. `hgpo_gae` with `history_length=0` and
    `norm=mean_norm` is B on every step whose observation is shared. Family: rewards with a critic. Source: third party
    (a summary of the paper, re-implementations; gamma and lambda are theirs).

    Use it where states recur. Where they do not, V is the step's own return and B is almost 0. Subtracting the mean
    of the group blames ordinary steps of a task in which few steps gained much.

    Args:
        batch: the steps.
        gamma: discount.
        trace_decay: lambda, from 0 to 1.
        norm: `mean_std_norm`, or `mean_norm` without the division.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown `norm`, a gamma or trace_decay outside [0, 1], or a level
    without keys.
    """
    check_shares(gamma=gamma)
    returns = batch.reward + gamma * sum_of_later(batch, batch.reward, gamma)
    value = over_unique_steps(batch, mean_of_group, returns, transitions(batch, level, time_aware).state)
    advantages = generalized_advantages(batch, value, gamma, trace_decay)
    relative = partial(relative_to_group, norm=norm, ddof=1)
    return over_unique_steps(batch, relative, advantages, batch.group_labels) - batch.penalty
