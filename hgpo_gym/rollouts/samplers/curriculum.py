"""Curriculum: the base class of samplers that draw tasks by weight."""

from abc import ABC, abstractmethod

import numpy as np

from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.samplers.base import Outcomes, Sampler, draw_tasks


class Curriculum(Sampler, ABC):
    """Draw the tasks of an iteration by weight, without repetition.

    If too few tasks have a weight above 0, the rest is drawn uniformly from the others. Its training tasks differ from
    those of other samplers, so compare runs only by their evaluations.
    """

    @abstractmethod
    def weights(self, iteration: int, outcomes: Outcomes) -> np.ndarray:
        """Return weights float64[tasks] of 0 or more, in the order of `task_ids`."""

    def tasks(self, iteration: int, count: int, outcomes: Outcomes) -> list[str]:
        return self.redraw(iteration, 0, count, outcomes)

    def redraw(self, iteration: int, round: int, count: int, outcomes: Outcomes) -> list[str]:
        """Draw the tasks by weight too, so that the curriculum also replaces failed groups."""
        generator = np.random.default_rng((RandomStream.TASKS, self.seed, iteration, round))
        return draw_tasks(generator, self.task_ids, self.weights(iteration, outcomes), count)
