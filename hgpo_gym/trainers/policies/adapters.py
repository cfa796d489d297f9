"""LoRA (Hu et al., 2021) by peft: small matrices that are trained beside weights that stay as they are. Over a base in
4 bits it is QLoRA (Dettmers et al., 2023)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hgpo_gym.trainers.policies.base import Likelihood, TokenRecord, TrainablePolicy
from hgpo_gym.trainers.settings import LoraSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG = "adapter_config.json"
"""The file that tells a folder with an adapter from one with a whole model."""


def add_adapter(model: "PreTrainedModel", settings: LoraSettings, seed: int) -> "PreTrainedModel":
    """The model with a new adapter, the only part of it that trains; it changes nothing yet.

    The adapter's weights are float32, whatever the model's are. `seed` draws the half of them that is not 0.

    Raises:
        ModuleNotFoundError: without peft.
        ValueError: `target_modules` names no part of the model.
    """
    peft = _import_peft()
    options = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.target_modules,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return peft.get_peft_model(model, options)


def base_of(folder: Path) -> str:
    """The folder or hub name of the model that the adapter in `folder` belongs to.

    Raises:
        FileNotFoundError: the model was in a folder that is gone.
    """
    base = _import_peft().PeftConfig.from_pretrained(folder).base_model_name_or_path
    if base.startswith("/") and not Path(base).exists():
        raise FileNotFoundError(
            f"The adapter in {folder} belongs to the model in {base}, which is gone. Put it back, or write its new "
            f"place as base_model_name_or_path in {folder / CONFIG}."
        )
    return base


def load_adapter(model: "PreTrainedModel", folder: Path) -> "PreTrainedModel":
    """The model with a saved adapter, ready to train on."""
    return _import_peft().PeftModel.from_pretrained(model, folder, is_trainable=True)


def has_adapter(model: torch.nn.Module) -> bool:
    return hasattr(model, "peft_config")


def without_adapter(model: Any) -> "PreTrainedModel":
    """The model that the adapter was added to, for its configuration."""
    return model.get_base_model() if has_adapter(model) else model


def merge(model: Any) -> "PreTrainedModel":
    """A plain model that computes the same as this one with its adapter, whose product is added to the weights."""
    return model.merge_and_unload()


@torch.no_grad()
def whole_weights(model: Any) -> dict[str, torch.Tensor]:
    """All weights by the names of a model without adapter, in full, the adapter's product added: for an engine that has
    the model a second time. The model itself stays as it is."""
    if not has_adapter(model):
        return model.state_dict()
    from peft.utils.integrations import dequantize_module_weight

    weights: dict[str, torch.Tensor] = {}
    for name, module in model.get_base_model().named_modules():
        if "lora_" in name or name.endswith(".base_layer"):
            continue
        adapted = hasattr(module, "get_delta_weight")
        for kind, value in (module.base_layer if adapted else module).named_parameters(recurse=False):
            weights[f"{name}.{kind}"] = value
        if adapted:
            full = dequantize_module_weight(module.base_layer)
            weights[f"{name}.weight"] = full + module.get_delta_weight("default").to(full.dtype)
        elif f"{name}.weight" in weights:
            weights[f"{name}.weight"] = dequantize_module_weight(module)
    return weights


class WithoutAdapter:
    """A policy with its adapter switched off: the weights it began with, at no cost in memory."""

    def __init__(self, policy: TrainablePolicy):
        self._policy = policy

    @property
    def model(self) -> torch.nn.Module:
        return self._policy.model

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """See `Scorer`."""
        model: Any = self._policy.model
        with model.disable_adapter():
            return self._policy.likelihood(records, temperature=temperature)


def _import_peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("model.lora needs peft: pip install 'hgpo_gym[lora]'") from error
    return peft
