"""The memory of an update step by the formula in docs/guides/gpu_memory.md."""

from dataclasses import dataclass, replace

import torch
import transformers

from hgpo_gym.policies.huggingface import DTYPES
from hgpo_gym.policies.likelihood import computing_in
from hgpo_gym.policies.lora import LoraSettings, add_adapters
from hgpo_gym.trainers.memory_estimate import ModelSize

FOUR_BITS = 0.516
"""Bytes a weight in nf4, with the scales of its blocks (Dettmers et al., 2023)."""


@dataclass(frozen=True)
class Setting:
    """A model, the tokens of a micro-batch, and how it trains. `response`: the share of tokens in responses."""

    hidden: int = 256
    intermediate: int = 1024
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 8192
    tied: bool = True
    tokens: int = 1024
    length: int = 256
    response: float = 0.125
    dtype: str = "float32"
    precision: str = "float32"
    checkpointing: bool = False
    lora_rank: int | None = None
    optimizer: str = "adamw"
    four_bits: bool = False

    def model_config(self) -> transformers.Qwen2Config:
        return transformers.Qwen2Config(
            vocab_size=self.vocabulary, hidden_size=self.hidden, intermediate_size=self.intermediate,
            num_hidden_layers=self.layers, num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            tie_word_embeddings=self.tied,
        )  # fmt: skip

    @property
    def name(self) -> str:
        parts = [f"{self.tokens} x {self.length}"]
        parts += [f"{self.layers} layers of {self.hidden}/{self.intermediate}"]
        parts += [f"{self.vocabulary} words"] * (self.vocabulary != Setting.vocabulary)
        parts += [f"answers {self.response:.0%}"] * (self.response != Setting.response)
        parts += [self.dtype] + ["autocast"] * ((self.dtype, self.precision) == ("float32", "bfloat16"))
        parts += ["checkpointing"] * self.checkpointing
        parts += [f"LoRA {self.lora_rank}"] if self.lora_rank else []
        parts += [self.optimizer] * (self.optimizer != "adamw")
        return ", ".join(parts)


def make_model(setting: Setting) -> transformers.PreTrainedModel:
    """With random weights, which take as much memory as any."""
    model: transformers.PreTrainedModel = transformers.Qwen2ForCausalLM(setting.model_config())
    torch.nn.Module.to(model, DTYPES[setting.dtype])
    if setting.lora_rank:
        lora = LoraSettings(rank=setting.lora_rank, alpha=32, dropout=0.0, target_modules="all-linear")
        model = add_adapters(model, lora, seed=0)
    return model


@dataclass(frozen=True)
class Memory:
    """Bytes: what there is as long as the run, and what passes take at their peak; see docs/guides/gpu_memory.md."""

    weights: float
    gradients: float
    optimizer: float
    passes: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.passes


def size_of(setting: Setting) -> ModelSize:
    """Return the size of a model that is not created."""
    with torch.device("meta"):
        size = ModelSize.of(make_model(setting))
    if not setting.four_bits:
        return size
    linear = setting.layers * (
        2 * setting.hidden**2 + 2 * setting.hidden * size.keys + 3 * setting.hidden * setting.intermediate
    )
    return replace(size, weights=size.weights - linear * (size.itemsize - FOUR_BITS))


def formula(setting: Setting) -> Memory:
    """The memory that an update step should take."""
    size = size_of(setting)
    eight_bits = setting.optimizer == "adamw_8bit"
    passes = size.passes(
        setting.tokens, setting.tokens * setting.response, setting.precision, checkpointing=setting.checkpointing
    )
    return Memory(size.weights, size.trained, 2 * (size.trained_numbers if eight_bits else size.trained), passes)


def kept_per_token(setting: Setting) -> float:
    """Bytes that one layer keeps of a token for the backward pass: what autograd says of a model whose heads have only
    eight numbers and all widths are less in proportion, times that proportion."""
    scale = setting.hidden // setting.heads // 8
    widths = {name: getattr(setting, name) // scale for name in ("hidden", "intermediate")}
    rank = setting.lora_rank and max(1, setting.lora_rank // scale)
    small = replace(setting, **widths, lora_rank=rank, vocabulary=64)
    counts = [_kept(replace(small, layers=layers), tokens) for layers in (1, 2) for tokens in (64, 128)]
    return scale * (counts[3] - counts[2] - counts[1] + counts[0]) / 64


def _kept(setting: Setting, tokens: int) -> int:
    model = make_model(setting)
    storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    model.train()
    ids = torch.zeros(1, tokens, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), computing_in(setting.precision, model):
        model.get_decoder()(input_ids=ids, use_cache=False)
    sizes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(size for storage, size in sizes.items() if storage not in storages)
