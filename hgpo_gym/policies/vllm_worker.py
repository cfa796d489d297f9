"""Extension of vLLM's workers that loads the trainer's weights. vLLM imports it by name (`worker_extension_cls`)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


class TrainerWeights:
    """A worker's side of `InferenceEngine.load`."""

    get_model: Any
    reload_weights: Any

    def load_trainer_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]] | None = None,
        path: str | None = None,
        tied_head: str | None = None,
    ) -> list[str]:
        """Replace the model's weights by these, or by those in a file. Returns the names of weights that are left.

        Args:
            weights: by their names in a checkpoint.
            path: a safetensors file with such weights.
            tied_head: the name of an output head that is tied to the embeddings. A model without a head (Gemma 2)
                skips it.
        """
        model = self.get_model()
        names = {name for name, _ in model.named_parameters()}
        weights = weights if path is None else _in_file(Path(path))
        if tied_head is not None and not any(tied_head.split(".")[-2] in name.split(".") for name in names):
            weights = ((name, weight) for name, weight in weights or () if name != tied_head)
        loaded: set[str] = set()
        load_weights = model.load_weights

        def recorded(weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
            nonlocal loaded
            loaded = load_weights(weights) or names
            return loaded

        model.load_weights = recorded
        try:
            with packing_experts(model):
                self.reload_weights(weights_iterator=iter(weights or ()))
        finally:
            del model.load_weights
        return sorted({name.replace(".base_layer.", ".") for name in names} - loaded)


@contextmanager
def packing_experts(model: torch.nn.Module) -> Iterator[None]:
    """Pack the fused experts that the block loads for a CPU. vLLM 0.32 packs them only when it makes their kernel,
    which would read experts that are loaded later as other weights."""
    from vllm.platforms import current_platform

    methods: list[Any] = [getattr(module, "quant_method", None) for module in model.modules()]
    kernels = {method: method.moe_kernel for method in methods if getattr(method, "moe_kernel", None) is not None}
    if not current_platform.is_cpu():
        kernels = {}
    for method in kernels:
        method.moe_kernel = None  # makes vLLM create it again
    try:
        yield
    finally:
        for method, kernel in kernels.items():
            method.moe_kernel = method.moe_kernel or kernel  # nothing was loaded


def _in_file(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it cannot be iterated over
            yield name, file.get_tensor(name)
