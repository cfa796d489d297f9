"""Weights & Biases. Project, entity and mode are its own environment variables: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE
(`offline` needs no account; `wandb sync` sends such a run later)."""

import os
import secrets
from pathlib import Path
from typing import Any

import wandb

from hgpo_gym.files import write_whole

PROJECT = "hgpo_gym"
"""Where runs go unless WANDB_PROJECT says otherwise."""


class WandbLogger:
    """Writes one run of Weights & Biases, with the settings as its config; a resumed run goes on in the same one.

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
        # Iterations that a killed run makes again have the same numbers; the server keeps the first of each step.
        self._run.log(metrics, step=int(metrics["iteration"]))

    def close(self) -> None:
        self._run.finish()


def _run_id(path: Path) -> str:
    """The id in the file, or a new one, which is kept there."""
    if not path.exists():
        write_whole(path, secrets.token_hex(4))
    return path.read_text(encoding="utf-8")
