"""LoRA (Hu et al., 2021) by peft, also over a base in 4 bits (QLoRA, Dettmers et al., 2023)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt

from hgpo_gym.extras import requires_extra
from hgpo_gym.policies.base import Likelihood, TokenRecord, TrainablePolicy
from hgpo_gym.policies.language_part import towers
from hgpo_gym.section import SettingsSection

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LoraSettings(SettingsSection):
    """See `configs/model/shared/language_model.yaml`."""

    rank: PositiveInt | None
    alpha: NonNegativeFloat
    dropout: Annotated[float, Field(ge=0, lt=1)]
    target_modules: str | list[str]


CONFIG = "adapter_config.json"
"""The file that a folder with an adapter has, and a folder with a whole model lacks."""
DEFAULT = "default"
"""peft's name of an adapter without a name."""


def add_adapters(
    model: "PreTrainedModel", settings: LoraSettings, seed: int, names: Sequence[str] = (DEFAULT,)
) -> "PreTrainedModel":
    """Return the model with new adapters, its only trainable weights. A vision tower gets none.

    The adapters are float32 for any format of the model. Their B matrices are 0, `seed` draws their A matrices.

    Raises:
        ModuleNotFoundError: peft is missing.
        ValueError: `target_modules` names no part of the model.
    """
    peft = _import_peft()
    options = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.target_modules,
        exclude_modules="|".join(rf"{re.escape(name)}\..+" for name in towers(model)) or None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapted = peft.get_peft_model(model, options, adapter_name=names[0])
        for name in names[1:]:
            adapted.add_adapter(name, options)
    _train_all(adapted)
    return adapted


def named_adapters(model: Any) -> tuple[str, ...]:
    """Return the names of the roles' adapters; none if all roles share one."""
    return tuple(name for name in getattr(model, "peft_config", ()) if name != DEFAULT)


def use_adapter(model: Any, name: str) -> None:
    """Make this adapter the active one. All adapters stay trainable."""
    model.set_adapter(name)
    _train_all(model)


def _train_all(model: torch.nn.Module) -> None:
    """Make all adapters trainable. peft does so for the active one alone, and gradients of others would be lost."""
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            weight.requires_grad_(True)


def adapters_in(folder: Path) -> dict[str, Path]:
    """Return the folder of each saved adapter, by name; none if the folder holds a whole model."""
    if (folder / CONFIG).exists():
        return {DEFAULT: folder}
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{CONFIG}"))}


def base_of(folder: Path) -> str:
    """Return the folder or hub name of an adapter's base model.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    base = _import_peft().PeftConfig.from_pretrained(folder).base_model_name_or_path
    if base.startswith("/") and not Path(base).exists():
        raise FileNotFoundError(
            f"The adapter in {folder} belongs to the model in {base}, which is gone. Restore it, or write its new "
            f"place as base_model_name_or_path in {folder / CONFIG}."
        )
    return base


def load_adapters(model: "PreTrainedModel", folders: Mapping[str, Path]) -> "PreTrainedModel":
    """Return the model with saved adapters, by name, ready for training."""
    (first, folder), *others = folders.items()
    adapted = _import_peft().PeftModel.from_pretrained(model, folder, adapter_name=first, is_trainable=True)
    for name, adapter_folder in others:
        adapted.load_adapter(adapter_folder, adapter_name=name, is_trainable=True)
    _train_all(adapted)
    return adapted


def has_adapter(model: torch.nn.Module) -> bool:
    return hasattr(model, "peft_config")


def base_model(model: Any) -> "PreTrainedModel":
    """Return the model under its adapters, or the model itself without one."""
    return model.get_base_model() if has_adapter(model) else model


def merge(model: Any) -> "PreTrainedModel":
    """Return a plain model that computes the same: the product of the adapter is added to the weights."""
    return model.merge_and_unload()


def adapter_rank(model: Any) -> int | None:
    """Return the rank of the model's shared adapter; None without an adapter, or with one for each role."""
    adapters = getattr(model, "peft_config", {})
    return adapters[DEFAULT].r if set(adapters) == {DEFAULT} else None


def save_adapter(model: Any, folder: Path) -> None:
    """Write the model's shared adapter, without the base model."""
    model.save_pretrained(folder, save_embedding_layers=False)


def unpack(model: torch.nn.Module) -> None:
    """Unpack weights of 4 bits. On a CPU with AVX512-BF16 bitsandbytes (0.49 and later) packs them at the first
    product; dequantizing packed weights gives wrong values. Reading the state dictionary unpacks them."""
    model.state_dict()


def base_weights(model: Any) -> "Iterator[tuple[str, torch.Tensor]]":
    """Yield the base model's weights by their names without an adapter."""
    from peft.utils.integrations import dequantize_module_weight

    unpack(model)
    base = model.get_base_model()
    modules = dict(base.named_modules())
    for peft_name, weight in base.named_parameters(remove_duplicate=False):
        if ".lora_" not in peft_name:
            module = modules[peft_name.rpartition(".")[0]]
            whole = dequantize_module_weight(module) if peft_name.endswith(".base_layer.weight") else weight
            yield peft_name.replace(".base_layer", ""), whole


def plain_weights(model: Any) -> "Iterator[tuple[str, torch.Tensor]]":
    """Yield the merged weights by their names without an adapter; a tied weight comes under each of its names.

    The model is unchanged, and weights without an adapter are not copied. Merged weights are float32: in bfloat16 most
    of what a new adapter has learned would be rounded away.
    """
    if not has_adapter(model):
        yield from model.named_parameters(remove_duplicate=False)
        return
    from peft.tuners.lora import LoraLayer
    from peft.utils.integrations import dequantize_module_weight

    unpack(model)
    base = model.get_base_model()
    # Fused experts are parameters. peft nests a layer around the module for each, with `parameter_name`.
    layers: dict[str, Any] = {
        f"{name.replace('.base_layer', '')}.{getattr(layer, 'parameter_name', 'weight')}": layer
        for name, layer in base.named_modules()
        if isinstance(layer, LoraLayer)
    }
    for peft_name, weight in base.named_parameters(remove_duplicate=False):
        name = peft_name.replace(".base_layer", "")
        if ".lora_" in name:
            continue
        layer = layers.get(name)
        if layer is None:
            yield name, weight
        else:
            (adapter,) = layer.active_adapters
            plain = weight if hasattr(layer, "parameter_name") else dequantize_module_weight(layer.base_layer)
            yield name, plain.float() + layer.get_delta_weight(adapter).float()


class WithoutAdapter:
    """Policy with its adapters disabled: a reference policy that needs no memory."""

    def __init__(self, policy: TrainablePolicy):
        self._policy = policy

    @property
    def model(self) -> torch.nn.Module:
        return self._policy.model

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        model: Any = self._policy.model
        with model.disable_adapter():
            return self._policy.likelihood(records, temperature=temperature)


def _import_peft() -> Any:
    with requires_extra("lora", "model.lora"):
        import peft
    return peft
