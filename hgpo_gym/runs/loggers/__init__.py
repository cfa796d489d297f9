"""Where a run's metrics go beside metrics.jsonl: one file a logger, one dict of names."""

import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hgpo_gym.suggest import unknown_name

LOGGERS = {
    "tensorboard": "hgpo_gym.runs.loggers.tensorboard:TensorBoardLogger",
    "wandb": "hgpo_gym.runs.loggers.wandb:WandbLogger",
}
"""The class of each logger by name. A logger's package is an extra of the same name."""


class Logger(Protocol):
    """Takes the metrics of one iteration after another."""

    def log(self, metrics: dict[str, float]) -> None:
        """The numbers of one iteration, `iteration` among them; the first is the one after the last of before."""

    def close(self) -> None:
        """Write what is left."""


MakeLogger = Callable[[Path, dict[str, Any], int], Logger]
"""From the run directory, its settings, and the iteration that the run goes on after (0: it is new)."""


def find_loggers(names: Sequence[str]) -> list[MakeLogger]:
    """The classes of these loggers; nothing is written yet.

    Raises:
        ValueError: an unknown name.
        ModuleNotFoundError: the package of a logger is missing.
    """
    for name in names:
        if name not in LOGGERS:
            raise ValueError(unknown_name("logger", name, LOGGERS))
    return [_find(name) for name in names]


def _find(name: str) -> MakeLogger:
    try:
        return pkgutil.resolve_name(LOGGERS[name])
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'loggers=[{name}] needs the package {error.name} ({error}): pip install "hgpo_gym[{name}]"',
            name=error.name,
        ) from error
