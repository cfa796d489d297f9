"""Potential differences, weighted by how often a task group fails."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import (
    discounted_returns,
    episode_advantage,
    mean_of_group,
    mean_over_copies,
    over_unique_steps,
    relative_to_group,
    success,
)
from hgpo_gym.advantages.values import next_in_episode


def pgpo(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    potential_discount: float = 1.0,
    alpha: float = 2.0,
    beta: float = 1.0,
    w_group: float = 0.0,
    leave_one_out: bool = False,
    norm: str = "mean_std_norm",
    episode_statistics: str = "trajectories",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """PGPO (arXiv:2609.02236): GiGPO's step term, plus potential differences where the task group often fails.

        Phi(s) = mean(G over the visits of s),   delta = c Phi(s') - Phi(s),   Phi = r after the last step
        A = z_S(G - p) + beta (1 - share of won episodes)^alpha z_S(delta) + w_group A_episode

    with z_S(x) = (x - mean) / (std + 1e-6) over the visits S of the state s, the deviation's n - 1, c the option
    `potential_discount`, and p the step's penalty. Family: states of a process or graph. Source: paper; it does not say
    n or n - 1.

    Within a state, Phi(s) is the same for all visits: the second term compares Phi(s') alone, as the step terms of
    `graft`, `graphgpo`, `g2po` and `graphhca` compare their values of s'. If rewards come at the end and no visit of s
    is a last step, it is the first term of `g2po`. With `mean_std_norm`, c has no effect: it scales all differences.

    Avoid it where few episodes succeed: groups that all fail have the largest weight and no signal.

    Args:
        batch: the steps; `success`, if recorded, marks the won episodes.
        gamma: discount of the returns G, from 0 to 1.
        potential_discount: c, the factor of Phi(s').
        alpha: exponent of the share of lost episodes, 0 or more; 0 gives all groups the weight beta.
        beta: weight of the potential differences.
        w_group: weight of the episode-level term.
        leave_one_out: leave the visit's own return out of Phi(s), and that of the next step out of Phi(s').
        norm: of all terms; `mean_norm` leaves out the divisions.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown name, a gamma outside [0, 1], a negative alpha or a level
    without keys.
    """
    if not alpha >= 0:
        raise ValueError(f"alpha={alpha}: choose a number of 0 or more.")
    returns = discounted_returns(batch, gamma)
    state = transitions(batch, level, time_aware).state
    potential = _potential(batch, returns + batch.penalty, state, leave_one_out)
    gain = potential_discount * next_in_episode(batch, potential, end=batch.reward) - potential
    lost = 1.0 - mean_of_group(success(batch)[batch.first_rows], batch.group_labels[batch.first_rows])
    relative = partial(relative_to_group, norm=norm, ddof=1)
    return (
        over_unique_steps(batch, relative, returns, state)
        + beta * lost[batch.trajectory_labels] ** alpha * over_unique_steps(batch, relative, gain, state)
        + w_group * episode_advantage(batch, norm, episode_statistics)
    )


def _potential(batch: StepBatch, returns: np.ndarray, state: np.ndarray, leave_one_out: bool) -> np.ndarray:
    """Return the mean return of each row's state, float64[N]; if asked, without the row's own visit (0 if alone)."""
    mean = over_unique_steps(batch, mean_of_group, returns, state)
    if not leave_one_out:
        return mean
    others = batch.visits(state) - 1
    visit_mean = mean_over_copies(batch, returns)
    return np.where(others > 0, mean + (mean - visit_mean) / np.maximum(others, 1), 0.0)
