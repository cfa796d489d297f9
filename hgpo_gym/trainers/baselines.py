"""Algorithms that are trained by another library, each with a network of its own: baselines for the others.

They have the same tasks in the same order, the same censuses, run directories and reports.
"""

import pkgutil
from typing import TYPE_CHECKING

from omegaconf import DictConfig

if TYPE_CHECKING:
    from hgpo_gym.trainers.processes import Processes
    from hgpo_gym.trainers.progress import Report
    from hgpo_gym.trainers.run_directory import RunDirectory
    from hgpo_gym.trainers.trainer import Trainer

BASELINES = {
    "sb3_ppo": "hgpo_gym.trainers.sb3.trainer:Sb3Trainer",
    "sb3_dqn": "hgpo_gym.trainers.sb3.trainer:Sb3Trainer",
}
"""What trains them, by `algo.name`. All other algorithms are estimators, and `Trainer` trains them."""


def is_baseline(config: DictConfig) -> bool:
    return config.algo.name in BASELINES


def make_trainer(
    config: DictConfig, run: "RunDirectory", report: "Report", processes: "Processes | None" = None
) -> "Trainer":
    """What trains a run of this configuration.

    Raises:
        ModuleNotFoundError: the library of a baseline is missing.
    """
    from hgpo_gym.trainers.processes import ALONE

    kind = pkgutil.resolve_name(BASELINES.get(config.algo.name, "hgpo_gym.trainers.trainer:Trainer"))
    return kind(config, run, report, processes or ALONE)
