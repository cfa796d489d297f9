"""Weights that several processes of a run train together: replicated (DDP) or sharded (FSDP2)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from hgpo_gym.policies.base import Likelihood, LikelihoodModel, TokenRecord
from hgpo_gym.policies.lora import has_adapter
from hgpo_gym.trainers.update.weights import Weights

if TYPE_CHECKING:
    from accelerate import Accelerator


class ReplicatedWeights(Weights):
    """Weights and optimiser that each process holds in full. DistributedDataParallel synchronises the gradients,
    which are views of its buckets and need no copy."""

    def __init__(self, policy: LikelihoodModel, accelerator: "Accelerator"):
        from accelerate.utils import DistributedDataParallelKwargs

        super().__init__(policy)
        accelerator.ddp_handler = DistributedDataParallelKwargs(gradient_as_bucket_view=True)
        self._root: DistributedDataParallel = accelerator.prepare_model(_Root(policy.model))

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        return self._root(self.policy.likelihood, records, temperature=temperature)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        with self._root.no_sync():
            yield


class ShardedWeights(Weights):
    """Weights and optimiser that are sharded over the processes by FSDP2, one unit per layer.

    `Accelerator.prepare` would choose DDP on CPUs, and it accepts no model without an optimizer. So its FSDP2 part
    is called directly.

    Raises:
        ImportError: torch is too old.
    """

    def __init__(self, policy: LikelihoodModel, accelerator: "Accelerator"):
        from accelerate.utils import FullyShardedDataParallelPlugin
        from accelerate.utils.fsdp_utils import fsdp2_prepare_model

        if not hasattr(FSDPModule, "reset_iter_state"):
            raise ImportError(f"distributed=fsdp2 needs torch 2.13, this is {torch.__version__}: set distributed=ddp.")
        super().__init__(policy)
        accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False
        )
        self._root = fsdp2_prepare_model(accelerator, _Root(policy.model))
        self._whole = False
        self._units = [module for module in self._root.modules() if isinstance(module, FSDPModule)]

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        return self._root(self._likelihood, records, temperature=temperature)

    def _likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        result = self.policy.likelihood(records, temperature=temperature)
        return result._replace(logprobs=result.logprobs.clone())  # FSDP2 accepts no view of a larger tensor

    def _part(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.to_local() if isinstance(weight, DTensor) else weight

    def _total(self, norm: torch.Tensor) -> torch.Tensor:
        assert isinstance(norm, DTensor)
        return norm.full_tensor()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        if self._whole:  # an outer block has gathered the weights
            yield
            return
        self._whole = True
        self._root(lambda: None)  # FSDP2 initialises the root before the layers
        self._root.set_reshard_after_forward(False)
        # Without this loop each layer would be gathered again in every pass of a rollout.
        for unit in self._units:
            unit.unshard()
        try:
            yield
        finally:
            self._root.reset_iter_state()  # forget the order of these passes, from which the next would prefetch
            self._root.set_reshard_after_forward(True)
            for unit in self._units:
                unit.reshard()
            self._whole = False

    def state_dict(self) -> dict[str, torch.Tensor]:
        model = self.policy.model
        # Beside an adapter nothing else is saved; a vision tower, which is frozen too, is.
        options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=has_adapter(model))
        names = {*dict(model.named_parameters()), *dict(model.named_buffers())}  # a tied weight's first name alone
        weights: dict[str, Any] = get_model_state_dict(model, options=options)
        return {name: weight for name, weight in weights.items() if name in names}


class _Root(torch.nn.Module):
    """A model as DDP and FSDP2 need it: every use of the model is a forward pass of this module."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model
        self._no_split_modules = getattr(model, "_no_split_modules", None)

    def forward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)
