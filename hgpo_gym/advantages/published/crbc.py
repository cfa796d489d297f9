"""Closed-form Bellman credit."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.process import Chain
from hgpo_gym.advantages.statistics import (
    check_shares,
    episode_advantage,
    joint_labels,
    mean_of_group,
    mean_over_copies,
    over_unique_steps,
    snap_equal,
    success,
)
from hgpo_gym.advantages.values import steps_left


@needs("action")
def crbc(
    batch: StepBatch,
    *,
    beta: float = 0.98,
    depth: int | None = None,
    w_group: float = 1.0,
    w_step: float = 5.0,
    sigma_min: float = 0.1,
    norm: str = "mean_std_norm",
    episode_statistics: str = "trajectories",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """CRBC (arXiv:2609.35082): the episodes of a task group as one Markov chain, solved exactly, plus GRPO's term.

    An action's value uses all visits of its next state, in any episode.

        V(s) = sum_a mu(a|s) Q(s, a),   Q(s, a) = beta sum_x P(x|s, a) V(x),   V = 1 after a success, 0 after other ends
        A = w_group A_episode + w_step (Q - V) / max(sigma(s), sigma_min),   sigma(s)^2 = sum_a mu (Q - V)^2

    with mu and P the frequencies in the group. A state with only one action has the step term 0. Penalties are part of
    the episode term only. Family: states of a process or graph. Source: paper (no code was found).

    Use it where states recur and the observation shows the state. Avoid it where observations hide the state,
    unless `level` or `time_aware` helps, and where rewards between failure and success matter. A group without a
    success has no step term.

    Args:
        batch: the steps, with the column `action`; `success`, if recorded, marks the ends of value 1.
        beta: discount of the chain, from 0 to 1.
        depth: None solves the chain. K: K backups from the means over visits of beta^(steps to the end) in won
            episodes.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term.
        sigma_min: above 0; the smallest divisor, so that tiny differences of action values are not amplified.
        norm: of the episode-level term, `mean_std_norm`, or `mean_norm` without the division.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown name, a beta outside [0, 1], a sigma_min that is not above 0, a
    negative depth or a level without keys.
    """
    check_shares(beta=beta)
    if not sigma_min > 0:
        raise ValueError(f"sigma_min={sigma_min}: choose a number above 0.")
    if depth is not None and depth < 0:
        raise ValueError(f"depth={depth}: choose 0 or more backups, or null to solve the chain.")
    chain = Chain.of(batch, level, time_aware)
    state = chain.state
    state_action = joint_labels(state, batch.column("action", "crbc"))
    if depth is None:
        action_value = over_unique_steps(batch, mean_of_group, beta * chain.values(beta)[chain.following], state_action)
    else:
        outcome = mean_over_copies(batch, np.where(success(batch), beta ** steps_left(batch), 0.0))
        action_value, value = over_unique_steps(batch, mean_of_group, outcome, state_action), chain.mean(outcome)
        for _ in range(depth):
            following = beta * chain.with_ends(value)[chain.following]
            action_value = over_unique_steps(batch, mean_of_group, following, state_action)
            value = chain.mean(action_value)
    # Rounding of the solve must not separate equal actions: the division by sigma would amplify it.
    action_value = snap_equal(action_value, state)
    action_advantage = action_value - over_unique_steps(batch, mean_of_group, action_value, state)
    sigma = np.sqrt(over_unique_steps(batch, mean_of_group, action_advantage**2, state))
    has_alternatives = batch.visits(state_action) < batch.visits(state)
    step_term = np.where(has_alternatives, action_advantage / np.maximum(sigma, sigma_min), 0.0)
    return w_group * episode_advantage(batch, norm, episode_statistics) + w_step * step_term
