"""The covariance by which clip_cov and kl_cov choose tokens (Cui et al., 2025, arXiv:2505.22617)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hgpo_gym.trainers.update.objectives import Prepared

if TYPE_CHECKING:
    from hgpo_gym.trainers.update.samples import TrainingSample


def covariances(rows: "Sequence[TrainingSample]") -> np.ndarray:
    """Return float64[T]: (A - mean A) (log old - mean log old) of every token. The means are over all tokens."""
    advantages = np.concatenate([row.advantages for row in rows], dtype=np.float64)
    old = np.concatenate([row.old_logprobs for row in rows if row.old_logprobs is not None], dtype=np.float64)
    return (advantages - advantages.mean()) * (old - old.mean())


def count_of(share: float, tokens: int) -> int:
    """Return the number of tokens in this share, at least one. Raises ValueError if the share is invalid."""
    if not 0 < share <= 1:
        raise ValueError(f"share={share}: a share of all tokens, above 0 and at most 1.")
    return max(1, int(share * tokens))


def selected(rows: "Sequence[TrainingSample]", chosen: np.ndarray) -> Prepared:
    """Return the column `selected`: 1 for the chosen tokens int64[S], indexed over all rows in sequence."""
    offsets = np.cumsum([len(row.advantages) for row in rows])
    marks = np.zeros(offsets[-1])
    marks[chosen] = 1
    return Prepared([{"selected": values} for values in np.split(marks, offsets[:-1])])
