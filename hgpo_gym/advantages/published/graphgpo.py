"""Distances to success in a task group's graph."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.process import transitions
from hgpo_gym.advantages.statistics import episode_advantage, over_unique_steps, relative_to_group, success


def graphgpo(
    batch: StepBatch,
    *,
    omega: float = 0.1,
    success_reward: float = 10.0,
    w_group: float = 1.0,
    w_step: float = 1.0,
    normalize_distance: bool = False,
    norm: str = "mean_std_norm",
    episode_statistics: str = "steps",
    level: int = 0,
    time_aware: bool = False,
) -> np.ndarray:
    """GraphGPO (ICML 2026, arXiv:2605.26684): distances to success in the task group's state graph, plus GRPO's term.

        c = success_reward * omega^d(s') - p,   A = w_group A_episode + w_step (c - mean) / (std + 1e-6) over S

    Steps are edges of the graph. d counts the edges of the shortest path to success, S are the visits of the state s,
    and p is the step's penalty. States without a path to success, and final states that are not recorded, are one edge
    farther than the farthest state with a path. The method assumes a deterministic environment: one lucky episode makes
    a state look near. Family: states of a process or graph. Source: code (a recipe as found in zzj1111/alfworldauto).

    Within a state, d(s) is the same for all visits. So the step term compares the next states alone, as those of
    `graft`, `g2po`, `pgpo` and `graphhca` do. With `mean_std_norm`, `normalize_distance` has an effect only beside
    penalties.

    Use it where states recur. Avoid it where observations hide the state: the graph then has edges that nobody can
    take. A group without a success has no step term.

    Args:
        batch: the steps; `final_keys` has the final state of lost episodes.
        omega: the factor per edge, above 0 and up to 1 (the authors: ALFWorld 0.1, WebShop 0.2, Sokoban 0.8).
        success_reward: the credit of the step that succeeds.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term.
        normalize_distance: use the exponent d(s') - d(s) + 1, the wasted edges, in place of d(s').
        norm: of both terms; `mean_norm` leaves out the divisions.
        episode_statistics: of the episode-level term, over `trajectories` or over `steps`, as in GRPO.
        level: history that equal states share: 0 is the current observation, k the k observations before it as well.
        time_aware: states also contain the number of steps taken, and so the distance to the step limit.

    Returns float64[N]. Raises ValueError on an unknown name, an omega outside (0, 1] or a level without keys.
    """
    if not 0.0 < omega <= 1.0:
        raise ValueError(f"omega={omega}: choose a number above 0, up to 1.")
    state, successor, last = transitions(batch, level, time_aware)
    distance, next_distance = _distances(state, successor, last & success(batch), batch.group_labels)
    credit = (
        success_reward * omega ** (next_distance - distance + 1 if normalize_distance else next_distance)
        - batch.penalty
    )
    episode_term = episode_advantage(batch, norm, episode_statistics)
    relative = partial(relative_to_group, norm=norm, ddof=1)
    return w_group * episode_term + w_step * over_unique_steps(batch, relative, credit, state)


def _distances(
    state: np.ndarray, successor: np.ndarray, succeeds: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the fewest edges to success from each step's state and from its next state, float64[N] each."""
    distance = np.full(max(state.max(initial=-1), successor.max(initial=-1)) + 1, np.inf)
    continues = ~succeeds & (successor >= 0)
    source, target = state[continues], successor[continues]
    reached, edges = state[succeeds], 1
    # Breadth-first search backwards from success, one distance per pass.
    while reached.size:
        distance[reached] = edges
        edges += 1
        reached = source[np.isfinite(distance[target]) & np.isinf(distance[source])]
    farthest = np.zeros(group.max(initial=-1) + 1)
    finite = np.isfinite(distance[state])
    np.maximum.at(farthest, group[finite], distance[state[finite]])
    no_path = farthest[group] + 1
    following = np.where(successor >= 0, distance[successor], np.inf)
    following = np.where(succeeds, 0.0, np.minimum(following, no_path))
    return np.minimum(distance[state], no_path), following
