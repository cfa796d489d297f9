"""One-step differences of visit means."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import (
    check_shares,
    episode_advantage,
    episode_returns,
    mean_of_group,
    over_unique_steps,
    relative_to_group,
    success,
)
from hgpo_gym.advantages.values import next_in_episode, steps_left


def g2po(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    w_group: float = 1.0,
    w_step: float = 1.0,
    norm: str = "mean_std_norm",
    episode_statistics: str = "steps",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """G2PO (arXiv:2606.22995): one-step temporal differences with visit means as the critic, plus GRPO's term.

    The next state's value is compared within the state. The gain in value is compared within the task group.

        V(s) = mean(gamma^(T - t) R over the visits of s),   v' = V(s'), after the last step R if won, else 0
        A = w_group A_episode + w_step (z_S(v' - p) + z_g(v' - V(s))),   z(x) = (x - mean) / (std + 1e-6)

    over the visits S of s and over all steps of the task group g, with the deviations' n - 1 and p the step's penalty.
    Family: states of a process or graph. Source: code (Nala-YN/G2PO, where 0.95 and a reward of 10 are constants).

    The first step term compares the next states of a state, as those of `graft`, `graphgpo`, `pgpo` and `graphhca` do.

    Avoid it where observations hide the state: it relies on the next state's mean alone.

    Args:
        batch: the steps; `success`, if recorded, marks the won episodes.
        gamma: discount, from 0 to 1.
        w_group: weight of the episode-level term.
        w_step: weight of the steps' terms.
        norm: of all terms; `mean_norm`, used for WebShop, leaves out the divisions.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown name, a gamma outside [0, 1] or a level without keys.
    """
    check_shares(gamma=gamma)
    state = transitions(batch, level, time_aware).state
    returns = episode_returns(batch)
    value = over_unique_steps(batch, mean_of_group, gamma ** steps_left(batch) * returns, state)
    relative = partial(relative_to_group, norm=norm, ddof=1)
    next_value = next_in_episode(batch, value, end=np.where(success(batch), returns, 0.0))
    in_state = over_unique_steps(batch, relative, next_value - batch.penalty, state)
    in_task = over_unique_steps(batch, relative, next_value - value, batch.group_labels)
    return w_group * episode_advantage(batch, norm, episode_statistics) + w_step * (in_state + in_task)
