"""Temporal differences of the chain's exact values."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.process import Chain
from hgpo_gym.advantages.statistics import check_shares, over_unique_steps, relative_to_group


def graft(batch: StepBatch, *, gamma: float = 0.99, level: int = 0, time_aware: bool = False) -> np.ndarray:
    """GRAFT (arXiv:2609.28963): temporal differences in the task group's Markov chain, compared within each state.

        A = (delta - mean) / (std + 1e-6) over the visits of s - p,   delta = gamma V(x) - V(s)

    with V the fixed point of the group's own transitions (as in `crbc`: 1 after a success, 0 after other ends), the
    deviation's n - 1, and p the step's penalty. A state visited once has relative value 0. The paper's Graph-GAE adds
    exactly 0 if states are matched exactly, since the differences of a state sum to 0; so there is no lambda. Family:
    states of a process or graph. Source: paper (no code was found; it does not say n or n - 1).

    Within a state, V(s) is the same for all visits: the term compares V(x) alone, as the step terms of `graphgpo`,
    `g2po`, `pgpo` and `graphhca` compare their values of the next state.

    Avoid it where chance decides what an action leads to: it credits the luck of the draw. Tiny differences count
    in full, since the deviation has no floor. A group without a success has no signal.

    Args:
        batch: the steps; `success`, if recorded, marks the ends of value 1.
        gamma: discount of the chain, from 0 to 1.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on a gamma outside [0, 1] or a level without keys.
    """
    check_shares(gamma=gamma)
    chain = Chain.of(batch, level, time_aware)
    values = chain.values(gamma)
    delta = gamma * values[chain.following] - values[chain.state]
    relative = partial(relative_to_group, norm="mean_std_norm", ddof=1)
    return over_unique_steps(batch, relative, delta, chain.state) - batch.penalty
