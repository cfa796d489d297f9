"""The language model within a model that reads images too. Such models are loaded whole and saved whole; what stands
beside the language model neither trains nor gets an adapter."""

from collections.abc import Iterator
from typing import Any

import torch


def towers(model: Any) -> list[str]:
    """Return the names of modules outside of the language model, like `model.vision_tower`; most models have none.
    The language model is the decoder with its embeddings."""
    parts = (model.get_decoder(), model.get_input_embeddings(), model.get_output_embeddings())
    language = {id(module) for part in parts for module in part.modules()}
    return list(_outside(model, language, ""))


def freeze_towers(model: Any) -> None:
    """Train the language model alone."""
    for name in towers(model):
        model.get_submodule(name).requires_grad_(False)


def text_model(model: Any) -> Any:
    """Return a text-only model without weights, or the model itself if it is text-only."""
    if not towers(model):
        return model
    import transformers

    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(model.config.get_text_config())


def _outside(module: torch.nn.Module, language: set[int], prefix: str) -> Iterator[str]:
    for name, child in module.named_children():
        if id(child) in language:
            continue
        if any(id(part) in language for part in child.modules()):
            yield from _outside(child, language, f"{prefix}{name}.")
        else:
            yield prefix + name
