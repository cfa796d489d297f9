"""Several rewards of an episode."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch


def episode_rewards(batch: StepBatch, weights: Sequence[float] | None, estimator: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the column `reward_vector` as float64[episodes, m], and the weights as float64[m], all 1 for None.

    Raises:
        ValueError: a missing column or wrong shape, a negative weight, or a wrong number of weights.
    """
    vector = batch.column("reward_vector", estimator).astype(np.float64)
    if vector.ndim != 2:
        raise ValueError(f"Estimator {estimator!r}: reward_vector has shape {vector.shape}, expected [N, m].")
    weighing = np.ones(vector.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if weighing.shape != vector.shape[1:] or (weighing < 0).any():
        raise ValueError(
            f"weights={weights}: reward_vector has {vector.shape[1]} rewards; choose as many weights, 0 or more each."
        )
    return vector[batch.first_rows], weighing
