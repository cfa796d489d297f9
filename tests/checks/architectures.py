"""Small models with random weights, one of each architecture, and how far what generates is from what trains."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.huggingface import train_tokenizer
from hgpo_gym.policies.language_part import freeze_towers
from hgpo_gym.policies.likelihood import score
from hgpo_gym.trainers.update.optimizer import trained_parameters

PROMPTS = ("Hall.", "You are in a hall. A red door leads north.", "You stand at a signpost. " * 12)
OPTIONS: dict[str, Any] = {"max_prompt_tokens": 400}
"""Of a policy: shorter prompts than these models read."""


def _shared(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": 400,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "initializer_range": 0.125,  # the default of 0.02 makes every token as likely as any other at this width
        **changes,
    }


def _gemma3_with_vision() -> Any:
    return transformers.Gemma3Config(
        text_config=transformers.Gemma3TextConfig(**_shared(query_pre_attn_scalar=32, sliding_window=64)),
        vision_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14,
        },
        mm_tokens_per_image=4, image_token_index=5, boi_token_index=6, eoi_token_index=7,
    )  # fmt: skip


ARCHITECTURES: dict[str, Callable[[], Any]] = {
    # One with experts comes first: vLLM makes the group that these are divided over with the first model of a process.
    "Qwen3-MoE": lambda: transformers.Qwen3MoeConfig(
        **_shared(moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2)
    ),
    "Mixtral": lambda: transformers.MixtralConfig(**_shared(num_local_experts=4, num_experts_per_tok=2)),
    "Qwen2": lambda: transformers.Qwen2Config(**_shared(tie_word_embeddings=True)),
    "Qwen3": lambda: transformers.Qwen3Config(**_shared()),
    "Llama": lambda: transformers.LlamaConfig(**_shared()),
    "Mistral": lambda: transformers.MistralConfig(**_shared(sliding_window=64)),
    "Gemma 2": lambda: transformers.Gemma2Config(**_shared(query_pre_attn_scalar=32, sliding_window=64)),
    "Gemma 3": lambda: transformers.Gemma3TextConfig(**_shared(query_pre_attn_scalar=32, sliding_window=64)),
    "Gemma 3 with vision": _gemma3_with_vision,
    "Phi-3": lambda: transformers.Phi3Config(**_shared()),
    "OLMo": lambda: transformers.OlmoConfig(**_shared()),
    "OLMo 2": lambda: transformers.Olmo2Config(**_shared()),
    "SmolLM3": lambda: transformers.SmolLM3Config(**_shared(num_hidden_layers=4)),
    "Phi": lambda: transformers.PhiConfig(**_shared()),
}


def make_model(name: str) -> Any:
    """As `load_model` leaves a model; every weight is random, biases and norms too."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(ARCHITECTURES[name]()).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn_like(weight)
    freeze_towers(model)
    return model


def make_tokenizer() -> Any:
    return train_tokenizer([*PROMPTS] * 3, 400)


def gap(policy: Any) -> float:
    """The largest difference between the log-probabilities that answers were drawn with, and the trainer's of them."""
    requested = [Request(prompt, seed=(number,)) for number, prompt in enumerate(PROMPTS)]
    records = [response.tokens for response in policy.generate(requested, Sampling(max_new_tokens=12))]
    scored = score(policy, records, temperature=1.0, max_batch_tokens=4096)
    return float(max(np.abs(record.logprobs - after).max() for record, after in zip(records, scored, strict=True)))


def update(policy: Any) -> None:
    """A large step of AdamW: by 0.05 a weight, towards answers that were drawn."""
    records = [response.tokens for response in policy.generate([Request(PROMPTS[0])], Sampling(max_new_tokens=12))]
    optimizer = torch.optim.AdamW(trained_parameters(policy.model), lr=0.05)
    (-policy.likelihood(records, temperature=1.0).logprobs.mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
    policy.updated()
