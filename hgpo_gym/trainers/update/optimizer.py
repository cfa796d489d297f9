"""The optimiser: AdamW with 32-bit or 8-bit state, or Muon, and a linear warm-up."""

from inspect import unwrap
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from hgpo_gym.extras import requires_extra
from hgpo_gym.trainers.update.settings import TrainerSettings

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def make_optimizer(model: torch.nn.Module, settings: TrainerSettings) -> torch.optim.Optimizer:
    """Return the optimiser of the trainable parameters: all of them, or the adapter's.

    AdamW's state has two numbers per parameter, in the parameter's format. With `adamw_8bit` they have 8 bits, in
    blocks that share a scale (Dettmers et al., 2022). `muon` is `MuonAndAdamW`.

    Raises:
        ModuleNotFoundError: 8 bits without bitsandbytes.
    """
    parameters = trained_parameters(model)
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adamw":
        return AdamW(parameters, lr=rate, weight_decay=decay)
    if settings.optimizer == "muon":
        return MuonAndAdamW(model, learning_rate=rate, weight_decay=decay)
    with requires_extra("bitsandbytes", f"trainer.optimizer={settings.optimizer}"):
        from bitsandbytes.optim import AdamW8bit
    return AdamW8bit(parameters, lr=rate, weight_decay=decay)


class AdamW(torch.optim.AdamW):
    """torch's AdamW, without the import of torch.compile.

    torch 2.13 imports `torch._dynamo` in the decorators of these methods, only to keep compiled code out of them. It
    takes longer than a small run. Nothing here is compiled.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024) for matrices, AdamW for embeddings, the output layer, vectors and scalars.

    Muon's steps have the root mean square of AdamW's (`match_rms_adamw`), so both have one learning rate.
    """

    def __init__(self, model: torch.nn.Module, *, learning_rate: float, weight_decay: float):
        matrices = [weight for weight in trained_parameters(model) if weight.ndim == 2]
        by_row = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
        head = getattr(model, "get_output_embeddings", lambda: None)()
        by_row |= {id(getattr(head, "weight", None))}
        matrices = [weight for weight in matrices if id(weight) not in by_row]
        others = [weight for weight in trained_parameters(model) if all(weight is not other for other in matrices)]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(
                torch.optim.Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
            )
        if others:
            self._parts.append(AdamW(others, lr=learning_rate, weight_decay=weight_decay))
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._share()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Make one step with both optimisers."""
        for part in self._parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state of such an optimiser."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        """Give both optimisers the groups and the state of this one, so that schedules and checkpoints see one."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state


def warm_up(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a learning-rate schedule that rises linearly over `steps` optimiser steps."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, steps)))


def trained_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def state_by_name(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> dict[str, Any]:
    """Return the optimiser's state, keyed by weight names. Sharded values are gathered for the main process; all
    processes take part."""
    names: dict[torch.Tensor, str] = {weight: name for name, weight in model.named_parameters()}
    state = {
        names[weight]: {key: _whole(value) for key, value in parameter_state.items()}
        for weight, parameter_state in optimizer.state.items()
    }
    groups = [{**group, "params": [names[weight] for weight in group["params"]]} for group in optimizer.param_groups]
    return {"state": state, "param_groups": groups}


def load_state_by_name(optimizer: torch.optim.Optimizer, model: torch.nn.Module, saved: dict[str, Any]) -> None:
    """Restore a state that `state_by_name` returned. If the weights are sharded, each process takes its shard of the
    state."""
    weights = dict(model.named_parameters())
    names = [name for group in saved["param_groups"] for name in group["params"]]
    # `Optimizer.load_state_dict` wants numbers for parameters, in the saved order.
    index_of = {name: number for number, name in enumerate(names)}
    state = {
        index_of[name]: {key: _like(value, weights[name]) for key, value in parameter_state.items()}
        for name, parameter_state in saved["state"].items()
    }
    groups = [{**group, "params": [index_of[name] for name in group["params"]]} for group in saved["param_groups"]]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _whole(value: Any) -> Any:
    if not _is_divided(value):
        return value
    whole = value.full_tensor()
    return whole.cpu() if value.device_mesh.get_rank() == 0 else None


def _like(value: Any, weight: torch.nn.Parameter) -> Any:
    """Shard a tensor of the weight's shape as the weight is sharded. Return anything else unchanged."""
    if _is_divided(weight) and isinstance(value, torch.Tensor) and value.shape == weight.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value, weight.device_mesh, weight.placements, src_data_rank=None)
    return value


def _is_divided(value: Any) -> "TypeGuard[DTensor]":
    """Return True for a DTensor. Test an attribute that only DTensors have, because importing their module takes a
    second."""
    return isinstance(value, torch.Tensor) and hasattr(value, "device_mesh")
