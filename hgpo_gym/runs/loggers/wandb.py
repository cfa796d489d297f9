"""Weights & Biases. Its own environment variables set project, entity and mode: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE
(`offline` needs no account; `wandb sync` uploads such a run later)."""

import os
import secrets
from pathlib import Path
from typing import Any

import wandb

from hgpo_gym.files import write_whole
from hgpo_gym.runs.run_files import read_bytes

PROJECT = "hgpo_gym"
"""The project, unless WANDB_PROJECT names another."""


class WandbLogger:
    """Logs to one run of Weights & Biases, with the settings as its config. A resumed run continues the same one.

    Raises:
        ConnectionError: not logged in, or the server cannot be reached.
    """

    def __init__(self, run_dir: Path, settings: dict[str, Any], after: int):  # noqa: ARG002 - Logger
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=str(run_dir),
                id=_run_id(run_dir / "wandb_run_id"),
                resume="allow",
                dir=run_dir,
                config=settings,
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as error:
            raise ConnectionError(
                f"Weights & Biases says: {error} Log in by 'wandb login', set WANDB_MODE=offline, or leave wandb out "
                "of loggers."
            ) from error

    def log(self, metrics: dict[str, float]) -> None:
        # A killed run repeats iterations with the same numbers; the server keeps the first value of each step.
        self._run.log(metrics, step=int(metrics["iteration"]))

    def close(self) -> None:
        self._run.finish()


def _run_id(path: Path) -> str:
    """Return the id in the file. If there is no file, make an id and write it."""
    if not path.exists():
        write_whole(path, secrets.token_hex(4))
    return read_bytes(path).decode()
