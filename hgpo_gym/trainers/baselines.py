"""Algorithms that are trained by another library, each with a network of its own: baselines for the others.

They have the same tasks in the same order, the same evaluations, run directories and reports.
"""

import pkgutil
from typing import TYPE_CHECKING

from omegaconf import DictConfig

if TYPE_CHECKING:
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.processes import Processes
    from hgpo_gym.trainers.run import Trainer
    from hgpo_gym.trainers.run_directory import RunDirectory

BASELINES = {
    "sb3_ppo": "hgpo_gym.trainers.learners.sb3.trainer:Sb3Trainer",
    "sb3_dqn": "hgpo_gym.trainers.learners.sb3.trainer:Sb3Trainer",
}
"""What trains them, by `algo.name`. All other algorithms are estimators, and `Trainer` trains them."""


def is_baseline(config: DictConfig) -> bool:
    return config.algo.name in BASELINES


def make_trainer(
    config: DictConfig, run: "RunDirectory", progress: "Progress", processes: "Processes | None" = None
) -> "Trainer":
    """What trains a run of this configuration.

    Raises:
        ModuleNotFoundError: the library of a baseline is missing.
    """
    from hgpo_gym.trainers.processes import ALONE

    kind = pkgutil.resolve_name(BASELINES.get(config.algo.name, "hgpo_gym.trainers.run:Trainer"))
    return kind(config, run, progress, processes or ALONE)
