"""The base of curricula that draw tasks by weight."""

from abc import ABC, abstractmethod

import numpy as np

from hgpo_gym.rollouts.samplers.base import Curriculum, TaskDraw, draw_tasks


class WeightedTasks(Curriculum, ABC):
    """Draw the tasks of each round by weight, without repetition.

    If too few tasks have a weight above 0, the rest is drawn uniformly from the others. The training tasks differ from
    those of other samplers, so compare runs only by their evaluations.
    """

    @abstractmethod
    def weights(self, draw: TaskDraw) -> np.ndarray:
        """Return weights float64[tasks] of 0 or more, in the order of `draw.task_ids`."""

    def tasks(self, draw: TaskDraw, count: int) -> list[str]:
        return draw_tasks(draw.generator, draw.task_ids, self.weights(draw), count)
