"""TensorBoard: `tensorboard --logdir runs` shows the runs below it side by side."""

import time
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger:
    """Writes event files in `tensorboard` in the run directory."""

    def __init__(self, run_dir: Path, settings: dict[str, Any], after: int):  # noqa: ARG002 - Logger
        # TensorBoard orders event files by name: second, host, process. Two files of one second could be swapped.
        used_seconds = {
            int(file.name.split(".")[3]) for file in (run_dir / "tensorboard").glob("events.out.tfevents.*")
        }
        while int(time.time()) in used_seconds:
            time.sleep(0.05)
        # A killed run may have logged iterations after its newest checkpoint; they are repeated, so purge them.
        self._writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=after + 1 if used_seconds else None)

    def log(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, int(metrics["iteration"]))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
