"""The processes that train one run together: how they share the work and exchange results.

`accelerate launch` or `torchrun` starts them, and accelerate carries all messages. `Processes` itself is the case of a
single process, which exchanges nothing.
"""

import atexit
import gc
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hgpo_gym.interrupts import interrupts_raised

if TYPE_CHECKING:
    import torch

LAUNCHED = "WORLD_SIZE"
"""The environment variable that holds the number of processes of a launcher."""
LONGEST_WAIT = timedelta(hours=12)
"""The longest wait for another process: a warm start may keep one busy for hours. If one dies, its launcher ends the
others."""

_ENDED: list["torch.distributed.ProcessGroup | None"] = []
"""Closed process groups, kept until Python is about to end: see `SeveralProcesses.close`."""


@atexit.register
def _end_groups() -> None:
    """Release the process groups last, which waits for gloo's threads: a thread that is still busy when Python ends
    aborts."""
    if _ENDED:
        gc.collect()
        _ENDED.clear()


T = TypeVar("T")


class Processes:
    """A single process.

    Attributes:
        rank: the number of this process, from 0.
        count: the number of processes.
        strategy: how they hold the weights, see `distributed` in `configs/config.yaml`.
    """

    rank = 0
    count = 1
    strategy = "none"

    @property
    def main(self) -> bool:
        """Return True for the process that writes the run directory and reports."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process' part of the items: neighbours. The parts' sizes differ by one at most."""
        # Integer bounds of neighbouring ranks meet, so that every item belongs to exactly one process.
        return items[self.rank * len(items) // self.count : (self.rank + 1) * len(items) // self.count]

    def gather(self, items: Sequence[T]) -> list[T]:
        """Return the items of all processes, in order of their ranks: the inverse of `share`."""
        return list(items)

    def each(self, make: Callable[[], T]) -> list[T]:
        """Return the results of `make` in every process, in order. `make` must not use the other processes. A signal
        that interrupts one of them raises KeyboardInterrupt in all."""
        return [make()]

    def sum(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """Return the sum of the processes' tensors, which have the same shape."""
        return tensor

    def on_main(self, make: Callable[[], T]) -> T:
        """Return the result of `make` in the main process, the only one that calls it."""
        return make()

    def wait(self) -> None:
        """Wait until every process has reached this call."""

    def close(self) -> None:
        """End the cooperation of the processes."""


ALONE = Processes()


class SeveralProcesses(Processes):
    """One of several processes.

    Args:
        strategy: `ddp` or `fsdp2`.
        on_cpu: communicate by gloo between CPUs, even if there are GPUs.
    """

    def __init__(self, strategy: str, *, on_cpu: bool):
        import torch.distributed.nn.functional  # noqa: F401 - imported later, its default arguments would keep the group alive
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        self.strategy = strategy
        # Precision is set by the update itself: accelerate would wrap the model's forward.
        self.accelerator = Accelerator(
            cpu=on_cpu, mixed_precision="no", kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_WAIT)]
        )
        self.rank, self.count = self.accelerator.process_index, self.accelerator.num_processes

    def gather(self, items: Sequence[T]) -> list[T]:
        from accelerate.utils import gather_object

        return gather_object(list(items))

    def each(self, make: Callable[[], T]) -> list[T]:
        values: list[T] = []
        # An interrupted process contributes an empty list, which shows the interruption to all others.
        with suppress(KeyboardInterrupt), interrupts_raised():
            values.append(make())
        parts = self.gather([values])
        if not all(parts):
            raise KeyboardInterrupt
        return [value for (value,) in parts]

    def sum(self, tensor: "torch.Tensor") -> "torch.Tensor":
        return self.accelerator.reduce(tensor, "sum")

    def on_main(self, make: Callable[[], T]) -> T:
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([make() if self.main else None])[0]

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()

    def close(self) -> None:
        import torch

        # If DDP's reducer held the last reference to the group, it would join gloo's thread while holding the GIL, and
        # that thread may wait for the GIL: a deadlock. Dropping Python's reference last releases the GIL first.
        _ENDED.append(torch.distributed.group.WORLD)
        if self.strategy == "fsdp2":
            from torch.distributed.device_mesh import DeviceMesh

            # The caches of DTensor keep the mesh alive, and the mesh keeps its process groups.
            for mesh in [item for item in gc.get_objects() if type(item) is DeviceMesh]:
                mesh._pg_registry.clear()
        self.accelerator.end_training()


def launched() -> int:
    """Return the number of processes that the launcher has started; 1 without a launcher."""
    return int(os.environ.get(LAUNCHED, "1"))


def join_processes(strategy: str, *, groups: int, on_cpu: bool) -> Processes:
    """Return the processes that were launched for a run, after all have started.

    Args:
        strategy: see `distributed` in `configs/config.yaml`.
        groups: task groups of an iteration, which they share.
        on_cpu: whether the run is on CPUs, even if there are GPUs.

    Raises:
        ValueError: the settings are not for several processes, or not for as many.
    """
    count = launched()
    if count == 1:
        return ALONE
    if strategy == "none":
        raise ValueError(f"{count} processes were launched, and distributed=none is for one: set ddp or fsdp2.")
    if groups % count:
        several = f"{groups - groups % count} or {groups - groups % count + count}" if groups > count else str(count)
        raise ValueError(
            f"rollout.num_tasks={groups} is not a multiple of {count} processes, which take whole groups, as many "
            f"each: set it to {several}, or launch another number of processes."
        )
    for plugin in ("FSDP", "DEEPSPEED"):
        if os.environ.get(f"ACCELERATE_USE_{plugin}") == "true":
            raise ValueError(f"accelerate is configured for {plugin}: leave that to distributed={strategy}.")
    import torch

    return SeveralProcesses(strategy, on_cpu=on_cpu or not torch.cuda.is_available())


def check_seen_by_all(processes: Processes, path: Path) -> None:
    """Check that this process sees a file that the main process has written.

    Raises:
        FileNotFoundError: it does not.
    """
    processes.wait()
    if not path.exists():
        raise FileNotFoundError(
            f"Process {processes.rank} on {socket.gethostname()} does not see {path}, which process 0 has written: "
            "put it on a file system that all machines share."
        )
