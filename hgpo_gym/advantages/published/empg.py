"""Advantages modulated by entropy."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs, over_the_batch
from hgpo_gym.advantages.estimators import NO_OPTIONS, assign_base
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.statistics import over_unique_steps, relative_to_group, snap_equal
from hgpo_gym.advantages.values import is_last, next_in_episode


@needs("entropy")
@over_the_batch
def empg(
    batch: StepBatch,
    *,
    base: str = "grpo",
    base_options: Mapping[str, Any] = NO_OPTIONS,
    k: float = 1.0,
    k_next: float = 1.0,
    bonus: float = 0.05,
) -> Advantages:
    """EMPG (arXiv:2509.09265): a base estimator's advantages, scaled up for confident steps, plus a bonus.

    The bonus goes to steps whose next step is confident.

        h = (H - min) / (max - min + 1e-8),   g = e^(-k h) / mean(e^(-k h)),
        A' = A_base g + bonus e^(-k_next h_{t+1}),   A = A' - mean(A')

    over all steps of the batch, with H the mean token entropy of the step's response; last steps have no bonus. Family:
    rewards of turns and tokens. Source: third party (WillDreamer/ARL-Arena).

    Avoid it for short or constrained responses: their entropy shows how many responses were admissible, not how
    sure the policy was.

    Args:
        batch: the steps, with the column `entropy`.
        base: the estimator whose advantages are modulated.
        base_options: options of the base, by name.
        k: strength of the confidence weight, 0 or more.
        k_next: how strongly the next step's confidence counts in the bonus.
        bonus: size of the bonus.

    Returns the values float64[N], and the base's other outputs. Raises ValueError on a negative k or k_next, an unknown
    base, a base with token advantages, or an error of the base.
    """
    for name, value in (("k", k), ("k_next", k_next)):
        if value < 0:
            raise ValueError(f"{name}={value}: choose 0 or more.")
    credit = assign_base(base, base_options, batch, of="empg")
    if not len(batch):
        return credit
    whole_batch = np.zeros(len(batch), dtype=np.int64)
    # Entropies that differ only by rounding would span the whole range from 0 to 1 after scaling.
    entropy = snap_equal(batch.column("entropy", "empg").astype(np.float64), whole_batch)
    scaled = (entropy - entropy.min()) / (entropy.max() - entropy.min() + 1e-8)
    confidence = np.exp(-k * scaled)
    next_confidence = np.where(is_last(batch), 0.0, np.exp(-k_next * next_in_episode(batch, scaled)))
    modulated = credit.values * (confidence / confidence[batch.distinct].mean()) + bonus * next_confidence
    centred = partial(relative_to_group, norm="mean_norm", ddof=1)
    return credit._replace(values=over_unique_steps(batch, centred, modulated, whole_batch))
