"""The processes that train one run together: which part of the work is whose, and what they tell each other.

They are started by `accelerate launch` or `torchrun`. Everything that they say goes through accelerate; `Processes` is
also the case of one process, which has nothing to say.
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
"""The variable by which a launcher says how many processes it has started."""
LONGEST_WAIT = timedelta(hours=12)
"""For each other: a warm start takes one process as long as it takes. If one dies, its launcher ends the others."""

_ENDED: list["torch.distributed.ProcessGroup | None"] = []
"""Process groups that were closed, kept until Python is about to end: see `SeveralProcesses.close`."""


@atexit.register
def _end_groups() -> None:
    """Wait for gloo's threads, by being the last to let go of their groups: one that is still busy when Python ends
    aborts."""
    if _ENDED:
        gc.collect()
        _ENDED.clear()


T = TypeVar("T")


class Processes:
    """A process that is alone.

    Attributes:
        rank: which process this is, from 0.
        count: how many there are.
        strategy: how they hold the weights that they train together, see `distributed` in `configs/config.yaml`.
    """

    rank = 0
    count = 1
    strategy = "none"

    @property
    def main(self) -> bool:
        """Whether this is the process that writes the run directory and reports."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process' part of what is to be done: neighbours, as many as the others have, or one more or less."""
        return items[self.rank * len(items) // self.count : (self.rank + 1) * len(items) // self.count]

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes in order, so that what was made of each `share` is put together again."""
        return list(items)

    def each(self, make: Callable[[], T]) -> list[T]:
        """What `make` returns in every process, in order; it does not look at the others. A signal that breaks it off
        in one of them raises KeyboardInterrupt in all."""
        return [make()]

    def sum(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """The sum of the tensors that the processes have, of the same shape."""
        return tensor

    def on_main(self, make: Callable[[], T]) -> T:
        """What `make` returns in the main process, the only one to call it."""
        return make()

    def wait(self) -> None:
        """Until every process has come here."""

    def close(self) -> None:
        """The end of working together."""


ALONE = Processes()


class SeveralProcesses(Processes):
    """One of several processes.

    Args:
        strategy: `ddp` or `fsdp2`.
        on_cpu: talk by gloo between CPUs, even if there are GPUs.
    """

    def __init__(self, strategy: str, *, on_cpu: bool):
        import torch.distributed.nn.functional  # noqa: F401 - later, its default arguments would keep the group for ever
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        self.strategy = strategy
        self.accelerator = Accelerator(
            cpu=on_cpu, mixed_precision="no", kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_WAIT)]
        )
        self.rank, self.count = self.accelerator.process_index, self.accelerator.num_processes

    def gather(self, items: Sequence[T]) -> list[T]:
        from accelerate.utils import gather_object

        return gather_object(list(items))

    def each(self, make: Callable[[], T]) -> list[T]:
        made: list[T] = []
        with suppress(KeyboardInterrupt), interrupts_raised():
            made.append(make())
        parts = self.gather([made])
        if not all(parts):
            raise KeyboardInterrupt
        return [own for (own,) in parts]

    def sum(self, tensor: "torch.Tensor") -> "torch.Tensor":
        return self.accelerator.reduce(tensor, "sum")

    def on_main(self, make: Callable[[], T]) -> T:
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([make() if self.main else None])[0]

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()

    def close(self) -> None:
        import torch

        # If DDP's reducer were the last to let go of the group, it would join a thread of gloo with Python's lock held,
        # which that thread may be waiting for. Python's own reference gives the lock up first.
        _ENDED.append(torch.distributed.group.WORLD)
        if self.strategy == "fsdp2":
            from torch.distributed.device_mesh import DeviceMesh

            for mesh in [item for item in gc.get_objects() if type(item) is DeviceMesh]:
                mesh._pg_registry.clear()  # the caches of DTensor keep the mesh
        self.accelerator.end_training()


def launched() -> int:
    """How many processes the launcher of this one has started, 1 without a launcher."""
    return int(os.environ.get(LAUNCHED, "1"))


def join_processes(strategy: str, *, groups: int, on_cpu: bool) -> Processes:
    """The processes that were launched for a run, once all are there.

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
            raise ValueError(f"accelerate was told to use {plugin}: leave that to distributed={strategy}.")
    import torch

    return SeveralProcesses(strategy, on_cpu=on_cpu or not torch.cuda.is_available())


def check_seen_by_all(processes: Processes, path: Path) -> None:
    """Check that what the main process has written is there for this one.

    Raises:
        FileNotFoundError: it is not.
    """
    processes.wait()
    if not path.exists():
        raise FileNotFoundError(
            f"Process {processes.rank} on {socket.gethostname()} does not see {path}, which process 0 has written: "
            "put it on a file system that all machines share."
        )
