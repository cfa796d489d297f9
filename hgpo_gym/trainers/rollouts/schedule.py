"""The order in which tasks are trained on."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.randomness import Stream


class TaskSchedule:
    """Goes through all tasks in a shuffled order, again and again; a function of the seed and the iteration alone.

    Every algorithm therefore sees the same tasks in the same order at the same seed, resumed or not.
    """

    def __init__(self, task_ids: Sequence[str], seed: int):
        self._task_ids, self._seed = task_ids, seed

    def tasks(self, iteration: int, count: int) -> list[str]:
        """The `count` tasks of an iteration, each iteration going on where the one before stopped."""
        first = iteration * count
        return [self._task(position) for position in range(first, first + count)]

    def _task(self, position: int) -> str:
        lap, index = divmod(position, len(self._task_ids))
        order = np.random.default_rng((Stream.TASKS, self._seed, lap)).permutation(len(self._task_ids))
        return self._task_ids[order[index]]
