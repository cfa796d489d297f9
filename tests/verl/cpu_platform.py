"""verl on machines without an accelerator: a platform `cpu` on gloo, its engines, and the rollout `tiny`.

VERL_USE_EXTERNAL_MODULES=tests.verl.cpu_platform makes every process that imports verl 0.9.1 import this module too.
Ray gets GPUs that do not exist (`ray_kwargs.ray_init.num_gpus`), because verl counts GPUs before it starts.
"""

import asyncio
import dataclasses
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform

# If verl 0.9.1 finds a trl, it imports its value heads, which trl 1.16 no longer has.
sys.modules.setdefault("trl", None)  # type: ignore[arg-type]
# peft imports it where it is installed, and with it torch's compiler: a second for each of ten processes.
sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]

DEVICE = torch.device("cpu")


def _device_module() -> types.ModuleType:
    """Return the functions that verl calls on `torch.cuda`. `torch.cpu` lacks most of them, and reports that it is
    available, so that verl would ask it for memory statistics."""
    module: Any = types.ModuleType("verl_cpu_device")
    zero = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "current_device")
    nothing = ("empty_cache", "synchronize", "set_device", "reset_peak_memory_stats", "ipc_collect")
    for name in zero:
        setattr(module, name, lambda *_, **__: 0)
    for name in nothing:
        setattr(module, name, lambda *_, **__: None)
    module.is_available = lambda: False
    module.device_count = lambda: 0
    module.mem_get_info = lambda *_, **__: (0, 0)
    module.get_device_name = lambda *_, **__: "CPU"
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state  # of checkpoints
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """Tensors stay in main memory, and processes communicate by gloo."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:
        return DEVICE  # verl passes it to `.to()`, where an index would be an accelerator

    def device_count(self) -> int:
        return 0

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


set_platform(CpuPlatform())


# verl 0.9.1 asks torch for the backend "cpu:gloo,<device>:<backend>", and torch refuses a device that is named twice.
# The patch comes before anything imports the function by name.
from verl.utils import distributed  # noqa: E402


def _one_backend(
    timeout_second: int | None = None,
    backend: str | None = None,
    *,
    _verl=distributed.initialize_global_process_group_ray,
) -> None:
    _verl(timeout_second, backend or "cpu:gloo")


distributed.initialize_global_process_group_ray = _one_backend


from verl.workers.engine.base import EngineRegistry  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402
from verl.workers.rollout.base import _ROLLOUT_REGISTRY  # noqa: E402
from verl.workers.rollout.replica import RolloutReplicaRegistry  # noqa: E402


@EngineRegistry.register("language_model", "fsdp2", "cpu")
class CpuEngine(FSDPEngineWithLMHead):
    """verl's engine, with a reference model that stays in memory: verl 0.9.1 offloads it to pinned memory, which does
    not exist without an accelerator."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        chosen: Any = self.engine_config  # type: ignore[has-type]
        self.engine_config = dataclasses.replace(chosen, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = chosen


def _tiny_replica() -> type:
    from tests.verl.tiny_rollout import TinyReplica

    return TinyReplica


RolloutReplicaRegistry.register("tiny", _tiny_replica)
# A private dictionary: verl 0.9.1 has no function that adds to it.
_ROLLOUT_REGISTRY["tiny", "async"] = "tests.verl.tiny_rollout.TinyAdapter"


from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry  # noqa: E402


@CheckpointEngineRegistry.register("file")
class FileEngine(CheckpointEngine):
    """Weights go from the trainer to servers of their own by a file; verl's engines for that need accelerators."""

    def __init__(self, bucket_size: int, is_master: bool = False):
        self._is_master = is_master
        self._path = Path()

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict]) -> Any:
        path = tempfile.mkdtemp() + "/weights"  # a new one each time
        return {"path": [path] * actor_wg_world_size}, {"path": [path] * rollout_world_size}

    def init_process_group(self, path: str) -> None:
        self._path = Path(path)

    def finalize(self) -> None:
        shutil.rmtree(self._path.parent, ignore_errors=True)

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, float]:
        whole = {name: value.detach().cpu() for name, value in weights}  # every process takes part in gathering them
        if self._is_master:
            torch.save(whole, self._path.with_suffix(".part"))
            self._path.with_suffix(".part").rename(self._path)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> Any:
        while not self._path.exists():
            await asyncio.sleep(0.1)
        for item in torch.load(self._path).items():
            yield item
