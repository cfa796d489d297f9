"""A curriculum by stages: begin with tasks that the expert solves in few steps."""

from collections.abc import Sequence

import numpy as np

from hgpo_gym.rollouts.samplers.base import TaskDraw
from hgpo_gym.rollouts.samplers.curricula._weighted import WeightedTasks

Stage = tuple[int | None, int | None]


class Stages(WeightedTasks):
    """Draw from the tasks that the expert solves within the stage's step limit. Needs an environment with an expert.

    Tasks that the expert does not win count as the longest. After the idea of CRAFT-GUI (arXiv 2508.11360), which has
    lengths up to 3, up to 8, and longer; the form is this project's design.

    Args:
        stages: pairs of the most steps (null: any) and the number of iterations (null: all later ones).
        easier: a stage includes the tasks of earlier stages; false leaves only its new tasks.

    Raises:
        ValueError: no stages, or steps that do not grow from stage to stage.
    """

    measure = "expert_length"

    def __init__(
        self,
        *,
        stages: Sequence[Stage] = ((3, 10), (8, 10), (None, None)),
        easier: bool = True,
    ):
        self._bounds = [np.inf if steps is None else float(steps) for steps, _ in stages]
        self._lengths = [np.inf if iterations is None else iterations for _, iterations in stages]
        if not stages or any(later <= bound for bound, later in zip(self._bounds, self._bounds[1:], strict=False)):
            raise ValueError(f"sampler.stages={stages}: give pairs of steps and iterations, the steps growing.")
        self._easier = easier

    def weights(self, draw: TaskDraw) -> np.ndarray:
        lengths = [draw.measured[task_id] for task_id in draw.task_ids]
        steps = np.array([np.inf if length is None else length for length in lengths])
        stage_ends = np.cumsum(self._lengths)
        stage = min(int(np.searchsorted(stage_ends, draw.iteration, side="right")), len(self._bounds) - 1)
        least = -np.inf if self._easier or stage == 0 else self._bounds[stage - 1]
        return ((steps > least) & (steps <= self._bounds[stage])).astype(np.float64)
