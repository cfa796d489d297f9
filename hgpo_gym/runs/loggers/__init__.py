"""Loggers: destinations of a run's metrics beside metrics.jsonl. Each has its file and a line in one dict."""

import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hgpo_gym.extras import requires_extra
from hgpo_gym.suggest import unknown_name

LOGGERS = {
    "tensorboard": "hgpo_gym.runs.loggers.tensorboard:TensorBoardLogger",
    "wandb": "hgpo_gym.runs.loggers.wandb:WandbLogger",
}
"""The class of each logger by name. The extra with the logger's name installs its package."""


class Logger(Protocol):
    """Receives the metrics of one iteration after another."""

    def log(self, metrics: dict[str, float]) -> None:
        """Log the numbers of an iteration, which include `iteration`. The first is the one after the last before the
        resumption."""

    def close(self) -> None:
        """Write everything that is still pending."""


MakeLogger = Callable[[Path, dict[str, Any], int], Logger]
"""A logger's class: takes the run directory, the settings, and the last iteration before a resumption (0: none)."""


def find_loggers(names: Sequence[str]) -> list[MakeLogger]:
    """Return the classes of these loggers. Nothing is written yet.

    Raises:
        ValueError: an unknown name.
        ModuleNotFoundError: the package of a logger is missing.
    """
    for name in names:
        if name not in LOGGERS:
            raise ValueError(unknown_name("logger", name, LOGGERS))
    return [_find(name) for name in names]


def _find(name: str) -> MakeLogger:
    with requires_extra(name, f"loggers=[{name}]"):
        return pkgutil.resolve_name(LOGGERS[name])
