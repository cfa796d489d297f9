"""`actor_rollout_ref.rollout.name=tiny`: transformers serves a small model in a Ray actor, request by request.

A rollout of verl 0.9.1 has three parts: the server, in `tiny_server`, the replica by which the driver starts it, and
the adapter by which the trainer's process gives it new weights. There is no sharding, batching or prefix cache.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutMode, RolloutReplica
from verl.workers.rollout.utils import ensure_async_iterator

from tests.verl.tiny_server import TinyServer


def server_name(replica_rank: int) -> str:
    return f"tiny_server_{replica_rank}"


class TinyReplica(RolloutReplica):
    """One `TinyServer`."""

    async def launch_servers(self) -> None:
        path = self.model_config.path
        limits = (self.config.prompt_length, self.config.response_length)
        server = (
            ray.remote(TinyServer)
            .options(name=server_name(self.replica_rank), max_concurrency=self.max_concurrency, num_cpus=0)
            .remote(
                path,
                limits,
                self.config.seed + self.replica_rank,
                awake=self.rollout_mode == RolloutMode.STANDALONE,
            )
        )
        self.servers = [server]
        self._server_handle, self._server_address = server, server_name(self.replica_rank)
        await server.clear_kv_cache.remote()  # the actor exists


class TinyAdapter(BaseRollout):
    """In the trainer's process."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_: Any):
        super().__init__(config, model_config, device_mesh)
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._server_of = server_name(rank if replica_rank < 0 else replica_rank)

    @property
    def _server(self) -> ray.actor.ActorHandle:
        return ray.get_actor(self._server_of)

    async def resume(self, tags: list[str]) -> None:
        await self._server.wake_up.remote(tags)

    async def release(self) -> None:
        await self._server.sleep.remote()

    async def update_weights(
        self,
        weights: Iterator[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        assert wire_format == "named_tensors", wire_format
        pairs: Any = ensure_async_iterator(weights)
        whole = {name: value.detach().to("cpu", copy=True) async for name, value in pairs}
        await self._server.load.remote(whole, global_steps)
