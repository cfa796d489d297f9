"""A curriculum from easy to hard: prefer tasks whose initial win rate is near a falling target."""

import numpy as np

from hgpo_gym.registry import follows
from hgpo_gym.rollouts.samplers.base import TaskDraw
from hgpo_gym.rollouts.samplers.curricula._weighted import WeightedTasks


@follows(iterations="trainer.iterations")
class Gaussian(WeightedTasks):
    """Weight tasks by exp(-(p - mean)^2 / (2 width^2)), with p the win rate before training.

    Tasks that were always won have weight 0. The mean moves linearly from `first` to `last` (arXiv 2604.03044, section
    3.3.3, from the paper).

    Args:
        iterations: of the training, over which the mean moves.
        episodes: of each task before training, to measure p. They count as played.
        first: the mean at the first iteration.
        last: the mean after the last one.
        width: standard deviation of the weights around the mean.

    Raises:
        ValueError: iterations or episodes below 1, width not above 0.
    """

    measure = "win_rate"

    def __init__(
        self,
        *,
        iterations: int,
        episodes: int = 10,
        first: float = 0.8,
        last: float = 0.2,
        width: float = 0.15,
    ):
        for name, value in (("iterations", iterations), ("episodes", episodes)):
            if value < 1:
                raise ValueError(f"sampler.{name}={value}: must be at least 1.")
        if width <= 0:
            raise ValueError(f"sampler.width={width}: must be above 0.")
        self.episodes_before = episodes
        self._iterations, self._first, self._last, self._width = iterations, first, last, width

    def weights(self, draw: TaskDraw) -> np.ndarray:
        win_rates = np.array([draw.measured[task_id] for task_id in draw.task_ids], dtype=np.float64)
        mean = self._first + (self._last - self._first) * min(1.0, draw.iteration / self._iterations)
        return gaussian_weights(win_rates, mean, self._width)


def gaussian_weights(win_rates: np.ndarray, mean: float, width: float) -> np.ndarray:
    """Return weights float64[tasks] for these win rates; 0 for a win rate of 1."""
    return np.where(win_rates >= 1, 0.0, np.exp(-((win_rates - mean) ** 2) / (2 * width**2)))
