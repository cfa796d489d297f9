"""Advantages from the values of restarts."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.advantages.statistics import check_shares
from hgpo_gym.advantages.values import is_last, next_in_episode


@needs("value")
def vineppo(batch: StepBatch, *, gamma: float = 1.0) -> np.ndarray:
    """VinePPO (Kazemnejad et al., 2024, arXiv:2410.01679): temporal differences of values that restarts sample.

        A = r + gamma v_{t+1} - v_t - p,   v = mean return of the restarts, 0 after the end

    with p the step's penalty. It needs no assumption on states. A step without restarts (NaN) has the value r_t + gamma
    v_{t+1}, and so a difference of 0. Its credit goes to the last step before it with restarts. For success 0 or 1 the
    standard error of v is sqrt(v (1 - v) / restarts). Family: episodes of a special sampler. Source: code
    (McGill-NLP/VinePPO, 9 restarts a state).

    Use it where states do not recur and environment steps are cheap. Where states recur, `nested_bellman` has a
    smaller error without additional episodes.

    Args:
        batch: the steps, with the column `value`, NaN where there were no restarts.
        gamma: discount, from 0 to 1; the restarts' returns must have the same.

    Returns float64[N]. Raises ValueError on a gamma outside [0, 1] or a missing column.
    """
    check_shares(gamma=gamma)
    value = batch.column("value", "vineppo").astype(np.float64).copy()
    has_value, last = ~np.isnan(value), is_last(batch)
    # Backwards, all episodes at once; a row's next row is its place after it in the episode's order.
    following = next_in_episode(batch, np.arange(len(batch), dtype=np.float64), end=-1.0).astype(np.int64)
    by_step = np.argsort(batch.step, kind="stable")
    begins = np.searchsorted(batch.step[by_step], np.arange(batch.step.max(initial=-1) + 2))
    for step in range(len(begins) - 2, -1, -1):
        rows = by_step[begins[step] : begins[step + 1]]
        rows = rows[~has_value[rows]]
        value[rows] = batch.reward[rows] + gamma * np.where(last[rows], 0.0, value[following[rows]])
    gained = batch.reward + gamma * next_in_episode(batch, value) - value
    return np.where(has_value, gained, 0.0) - batch.penalty
