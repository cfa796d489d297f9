"""Logarithms of the chain's exact values, compared within each state."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.process import Chain, transitions
from hgpo_gym.advantages.statistics import (
    check_shares,
    episode_advantage,
    over_unique_steps,
    relative_to_group,
    success,
)


def graphhca(
    batch: StepBatch,
    *,
    beta: float = 0.95,
    floor: float = 0.01,
    absorb_final: bool = False,
    w_group: float = 1.0,
    w_step: float = 1.0,
    norm: str = "mean_std_norm",
    episode_statistics: str = "trajectories",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """GraphHCA (arXiv:2609.35084): hindsight credit log(V(s') / V(s)) in the task group's chain, plus GRPO's term.

        A = w_group A_episode + w_step z_S(psi(s') - psi(s)),   psi(s) = log max(V(s), floor)

    with V the fixed point of the group's own transitions (as in `crbc`: 1 after a success, 0 after other ends), and
    z_S(x) = (x - mean) / (std + 1e-6) over the visits S of the state s, the deviation's n. Penalties are part of the
    episode term only. Family: states of a process or graph. Source: paper (a summary of its full text) and third-party
    code.

    Within a state, psi(s) is the same for all visits: the step term compares psi(s') alone, as the step terms of
    `graft`, `graphgpo`, `g2po` and `pgpo` compare their values of s'. If a state has two successors, it is that of
    `graft` times sqrt(n / (n - 1)), unless the floor makes their values equal.

    Avoid it where chance decides what an action leads to: the ratio is hindsight credit only if steps are
    deterministic. Avoid it in long episodes: success 90 steps ahead is below the floor (0.95^90 < 0.01). A group
    without a success has no step term.

    Args:
        batch: the steps; `success`, if recorded, marks the ends of value 1, and `final_keys` has the final states.
        beta: discount of the chain, from 0 to 1.
        floor: above 0; the smallest value that is told apart.
        absorb_final: an episode's final state ends all episodes that reach it: its value is 1 if an episode of the
            group succeeded there, else 0. Otherwise every end is a node of its own.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term.
        norm: of both terms; `mean_norm` leaves out the divisions.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown name, a beta outside [0, 1], a floor that is not above 0 or a
    level without keys.
    """
    check_shares(beta=beta)
    if not floor > 0:
        raise ValueError(f"floor={floor}: choose a number above 0.")
    chain = Chain.of(batch, level, time_aware)
    if absorb_final:
        chain = chain._replace(following=_absorbed(batch, chain, level, time_aware))
    worth = np.log(np.maximum(chain.values(beta), floor))
    relative = partial(relative_to_group, norm=norm, ddof=0)
    step_term = over_unique_steps(batch, relative, worth[chain.following] - worth[chain.state], chain.state)
    return w_group * episode_advantage(batch, norm, episode_statistics) + w_step * step_term


def _absorbed(batch: StepBatch, chain: Chain, level: int, time_aware: bool) -> np.ndarray:
    """Return `chain.following` with every final state replaced by the end of its value, int64[N]."""
    state, successor, last = transitions(batch, level, time_aware)
    ends = successor[last & (successor >= 0)]
    wins = successor[last & (successor >= 0) & success(batch)]
    # Unknown ends have the number -1, the last place, which no state has.
    is_final = np.zeros(max(state.max(initial=-1), successor.max(initial=-1)) + 2, dtype=np.bool_)
    is_won = is_final.copy()
    is_final[ends], is_won[wins] = True, True
    return np.where(is_final[successor], len(chain.group) + ~is_won[successor], chain.following)
