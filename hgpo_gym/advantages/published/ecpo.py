"""Means of actions, shrunk towards their state's mean."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import (
    EPSILON,
    discounted_returns,
    episode_advantage,
    joint_labels,
    mean_of_group,
    mean_over_copies,
    over_unique_steps,
    snap_equal,
)


@needs("action")
def ecpo(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    shrinkage: float = 2.0,
    evidence: float = 4.0,
    w_group: float = 1.0,
    w_step: float = 1.0,
    norm: str = "mean_std_norm",
    episode_statistics: str = "trajectories",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """ECPO (arXiv:2606.05885), in our reading: shrunk means of actions within each state, plus GRPO's term.

        A = w_group A_episode + w_step rho(s) (m(s, a) - mu(s)) / (sigma(s) + 1e-6)
        m(s, a) = (n_a mean_a + k mu(s)) / (n_a + k),   rho(s) = tanh(n(s) / evidence) B / (B + W + 1e-6)

    over the returns x = G - p of the visits of s: mu and sigma (n - 1) are their mean and deviation, mean_a the mean of
    the n_a visits with action a, k the option `shrinkage`, and p the step's penalty. B and W are the parts of the
    variance (over n) between and within actions. Equal x give 0. Family: steps with equal histories. Source: third
    party (summaries with shrinkage, rho and the sum of terms; no code was found).

    Four points are our reading: the returns' deviation is the divisor, since a z-score of the means would undo the
    shrinkage; B and W are of raw returns, over n; `evidence`, `w_step` and 1e-6 are not known; and x holds the penalty,
    as in GiGPO. The name is also that of a loss for recommenders.

    Avoid it where each action of a state was tried once: then W is 0, and rho trusts the noisiest means most.

    Args:
        batch: the steps, with the column `action`.
        gamma: discount of the returns G, from 0 to 1.
        shrinkage: k, 0 or more: the visits that the state's mean counts for.
        evidence: visits of the state after which rho opens, 0 or more; 0 opens it at once.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term.
        norm: of both terms; `mean_norm` leaves out the divisions.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown name, a gamma outside [0, 1], a negative shrinkage or evidence,
    a missing column or a level without keys.
    """
    for name, value in (("shrinkage", shrinkage), ("evidence", evidence)):
        if not value >= 0:
            raise ValueError(f"{name}={value}: choose a number of 0 or more.")
    episode_term = episode_advantage(batch, norm, episode_statistics)
    state = transitions(batch, level, time_aware).state
    state_action = joint_labels(state, batch.column("action", "ecpo"))
    returns = snap_equal(mean_over_copies(batch, discounted_returns(batch, gamma)), state)

    def mean(values: np.ndarray, sets: np.ndarray) -> np.ndarray:
        return over_unique_steps(batch, mean_of_group, values, sets)

    action_mean = mean(returns, state_action)
    above = action_mean - mean(returns, state)
    between, within = mean(above**2, state), mean((returns - action_mean) ** 2, state)
    visits, tried = batch.visits(state), batch.visits(state_action)
    step_term = above * tried / (tried + shrinkage) * between / (between + within + EPSILON)
    if evidence:
        step_term *= np.tanh(visits / evidence)
    if norm == "mean_std_norm":
        step_term /= np.sqrt((between + within) * visits / np.maximum(visits - 1, 1)) + EPSILON
    return w_group * episode_term + w_step * step_term
