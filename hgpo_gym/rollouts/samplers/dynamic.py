"""Dynamic sampling: groups that carry no signal are played anew."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import episode_returns
from hgpo_gym.rollouts.samplers.base import Sampler
from hgpo_gym.suggest import unknown_name

CRITERIA = ("returns", "advantages")
TOLERANCE = 1e-10
"""Returns that differ by no more than this share of their size are equal: they are sums."""


class Dynamic(Sampler):
    """Keeps the groups whose episodes' returns are not all equal, and plays as many others instead of the rest.

    DAPO (arXiv 2503.14476), by the returns of episodes as in the code of DrMAS (langfengQ/DrMAS), which plays whole
    batches and learns from the surplus; to play only what is missing is this project's choice. Compare at equal played
    steps.

    Args:
        criterion: `returns`, or `advantages`: a group is kept unless all its advantages are 0 (groups of equal returns
            can differ by steps). The latter means nothing with estimators that whiten over the batch.
        rounds: the most rounds of an iteration, the first one included; the groups of the last one are kept whatever
            they are (ARL-Arena: 3).
        after: iterations without it (ARL-Arena: 5 to 15).

    Raises:
        ValueError: an unknown criterion, rounds below 1, after below 0.
    """

    def __init__(
        self, task_ids: Sequence[str], seed: int, *, criterion: str = "returns", rounds: int = 10, after: int = 0
    ):
        super().__init__(task_ids, seed)
        if criterion not in CRITERIA:
            raise ValueError(unknown_name("sampler.criterion", criterion, CRITERIA))
        if rounds < 1:
            raise ValueError(f"sampler.rounds={rounds}: an iteration has to play 1 round at least.")
        if after < 0:
            raise ValueError(f"sampler.after={after}: choose 0 or more iterations.")
        self._criterion, self._rounds, self._after = criterion, rounds, after

    def most_rounds(self, iteration: int) -> int:
        return 1 if iteration < self._after else self._rounds

    def informative(self, batch: StepBatch, advantages: np.ndarray) -> np.ndarray:
        groups = np.arange(batch.group_labels.max(initial=-1) + 1)
        if self._criterion == "advantages":
            return np.isin(groups, batch.group_labels[advantages != 0])
        own, returns = batch.group_labels[batch.first_rows], episode_returns(batch)[batch.first_rows]
        return np.array([is_informative(returns[own == group]) for group in groups], dtype=np.bool_)


def is_informative(returns: np.ndarray) -> bool:
    """Whether the returns of a group's episodes, float64[n], are not all equal. A group of one always is."""
    size = max(1.0, float(np.abs(returns).max()))
    return len(returns) == 1 or float(returns.max() - returns.min()) > TOLERANCE * size
