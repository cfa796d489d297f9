"""Weights in the format of a checkpoint, for an inference engine.

transformers 5 fuses the experts of some models (Mixtral, Qwen3-MoE) into one tensor per layer when it loads them, and
splits them again when it saves.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import torch

from hgpo_gym.policies.language_part import text_model
from hgpo_gym.policies.lora import base_model, base_weights, plain_weights


def engine_weights(model: Any, *, with_adapter: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the language model's weights as `save_pretrained` writes them, and the output head even if it is tied to
    the embeddings.

    Args:
        model: a causal language model, with or without an adapter.
        with_adapter: merge the adapter into the weights; otherwise leave it out.
    """
    weights = plain_weights(model) if with_adapter else base_weights(model)
    return _as_saved(base_model(model), weights)


def tied_head(model: Any) -> str | None:
    """Return the checkpoint's name of an output head that is tied to the embeddings; None if it is not tied."""
    base: Any = base_model(model)
    head: Any = base.get_output_embeddings()
    if head.weight is not base.get_input_embeddings().weight:
        return None
    ((saved, _),) = _as_saved(base, [(f"{_name(base, head)}.weight", head.weight)])
    return saved


def _as_saved(base: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield weights by layer: fused tensors are within one, and only one layer's merged weights are in memory."""
    from transformers.core_model_loading import revert_weight_conversion

    plain = text_model(base)
    if plain is not base:
        weights = _of_language_model(base, plain, weights)
    for _, layer in groupby(weights, lambda item: re.match(r".*?\.\d+\.|", item[0]).group()):  # type: ignore[union-attr]
        yield from revert_weight_conversion(plain, dict(layer)).items()


def _of_language_model(
    base: Any, plain: Any, weights: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights of the language model in `base`, by their names in the text-only model `plain`."""
    names = {
        f"{_name(base, part)}.": f"{_name(plain, same)}."
        for part, same in (
            (base.get_decoder(), plain.get_decoder()),
            (base.get_output_embeddings(), plain.get_output_embeddings()),
        )
    }
    for name, weight in weights:
        for prefix, other in names.items():
            if name.startswith(prefix):
                yield other + name.removeprefix(prefix), weight


def _name(model: torch.nn.Module, part: torch.nn.Module) -> str:
    (name,) = (name for name, module in model.named_modules() if module is part)
    return name
