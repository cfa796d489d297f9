"""Hierarchy-of-Groups Policy Optimization."""

from functools import partial

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import (
    EPISODE_STATISTICS,
    EPSILON,
    compare_in_group,
    discounted_returns,
    episode_advantage,
    episode_returns,
    over_unique_steps,
    values_differ,
)
from hgpo_gym.suggest import unknown_name

WEIGHTS = {"paper": 1.0, "released": 2.0}
"""The number added to the level before the power alpha: by the paper's formula, and by its released code."""
LARGEST_WEIGHT = 1e100
"""The largest weight of a level: sums of larger ones could overflow."""


def hgpo(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    norm: str = "mean_std_norm",
    history_length: int | None = None,
    length_weight_alpha: float = 1.0,
    weights: str = "paper",
    base_group: bool = False,
    episode_statistics: str = "steps",
) -> np.ndarray:
    """Hierarchy-of-Groups Policy Optimization (ICLR 2026).

        A = sum_k w_k A_k / (sum_k w_k + 1e-6),   w_k = (k + 1)^alpha,
        A_k = (G_t - mean(G of steps with equal key[k])) / (std + 1e-6)

    A step is compared with steps of its task group that share the observation (level 0), the last two observations
    (level 1), and so on up to level K. Weights grow with the length of the shared history. Only levels at which the
    returns of the step's set differ count. A step without such a level gets 0. Family: steps with equal histories.

    Args:
        batch: the steps, with context keys at least up to level K.
        gamma: discount of the step returns G_t.
        norm: `mean_std_norm`, or `mean_norm` without the division.
        history_length: K; None uses every level of the batch.
        length_weight_alpha: alpha; 0 weighs all levels alike.
        weights: `paper`, or `released` with (k + 2)^alpha.
        base_group: the episode's advantage in its task group is one more level, of weight 1.
        episode_statistics: for the base group, see `episode_advantage`; the default is that of the released code.

    Returns float64[N]. Raises ValueError on an unknown name, a gamma outside [0, 1], a weight above 1e100, or a
    `history_length` that the batch has no keys for.
    """
    if weights not in WEIGHTS:
        raise ValueError(unknown_name("weights", weights, WEIGHTS))
    deepest = batch.history_length if history_length is None else history_length
    batch.check_level(deepest, "history_length")
    if episode_statistics not in EPISODE_STATISTICS:
        raise ValueError(unknown_name("episode_statistics", episode_statistics, EPISODE_STATISTICS))
    returns = discounted_returns(batch, gamma)
    compare = partial(compare_in_group, norm=norm, ddof=0)
    total, total_weight = np.zeros((2, len(batch)))
    for level in range(1 + deepest):
        weight = _weight(level + WEIGHTS[weights], length_weight_alpha)
        compared = weight * over_unique_steps(batch, compare, returns, batch.key_groups(level))
        total += compared[:, 0]
        total_weight += compared[:, 1]
    if base_group:
        episode_term = episode_advantage(batch, norm, episode_statistics)
        total += episode_term
        differ = values_differ(episode_returns(batch) - batch.penalty, batch.group_labels)
        # A single episode has its own return as advantage, so its level counts too.
        total_weight += differ | (episode_term != 0)
    return total / (total_weight + EPSILON)


def _weight(length: float, alpha: float) -> float:
    with np.errstate(over="ignore"):
        weight = float(np.float_power(length, alpha))
    if weight > LARGEST_WEIGHT:
        raise ValueError(
            f"length_weight_alpha={alpha}: {length:g} to the power of it is more than {LARGEST_WEIGHT:g}. Set a "
            "smaller one; the paper's is 1."
        )
    return weight
