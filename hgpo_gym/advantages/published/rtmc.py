"""Action values from the visits of a state."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import (
    check_shares,
    joint_labels,
    mean_of_group,
    over_unique_steps,
    relative_to_group,
    sum_of_later,
)


@needs("action")
def rtmc(
    batch: StepBatch, *, gamma: float = 0.95, norm: str = "mean_norm", level: int = 0, time_aware: bool = False
) -> np.ndarray:
    """RTMC (arXiv:2604.11037): the mean return of an action in its state, less the mean return of the state.

        A = Q(s, a) - V(s) - p,   V(s) = mean(G over the visits of s),   Q(s, a) = mean(G over those with action a)

    with p the step's penalty, which G does not include. This is GiGPO's step term, averaged over equal actions. Every
    visit in the task group counts. A state with one action has Q - V = 0. Family: steps with equal histories. Source:
    third party (a comparison in GRAFT's appendix); the default discount is this project's.

    Use it where states recur; elsewhere every step gets 0. The returns contain the luck of all later steps, which
    `crbc` removes.

    Args:
        batch: the steps, with the column `action`.
        gamma: discount of the step returns G_t.
        norm: `mean_norm`, or `mean_std_norm`: over the deviation (n - 1) of Q over the visits of s.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown `norm`, a gamma outside [0, 1] or a level without keys.
    """
    check_shares(gamma=gamma)
    returns = batch.reward + gamma * sum_of_later(batch, batch.reward, gamma)
    state = transitions(batch, level, time_aware).state
    state_action = joint_labels(state, batch.column("action", "rtmc"))
    action_value = over_unique_steps(batch, mean_of_group, returns, state_action)
    relative = partial(relative_to_group, norm=norm, ddof=1)
    return over_unique_steps(batch, relative, action_value, state) - batch.penalty
