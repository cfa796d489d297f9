"""What curricula share: tasks are drawn by weight."""

from abc import ABC, abstractmethod

import numpy as np

from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.samplers.base import Outcomes, Sampler, draw_tasks


class Curriculum(Sampler, ABC):
    """Draws the tasks of an iteration by weight, without repetition. Where too few tasks have weight, the rest comes
    from the others, uniformly. It trains on other tasks than other samplers do: compare by evaluations alone.
    """

    @abstractmethod
    def weights(self, iteration: int, outcomes: Outcomes) -> np.ndarray:
        """float64[tasks], 0 or more, in the order of `task_ids`."""

    def tasks(self, iteration: int, count: int, outcomes: Outcomes) -> list[str]:
        return self.redraw(iteration, 0, count, outcomes)

    def redraw(self, iteration: int, round: int, count: int, outcomes: Outcomes) -> list[str]:
        """By weight as well: a group whose environment failed is replaced by one of the curriculum."""
        generator = np.random.default_rng((RandomStream.TASKS, self.seed, iteration, round))
        return draw_tasks(generator, self.task_ids, self.weights(iteration, outcomes), count)
