"""The number of tokens that a language model was trained to read."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def check_length(model: "PreTrainedModel", max_prompt_tokens: int, max_new_tokens: int) -> None:
    """Refuse prompts and responses that together may be longer than the model's positions.

    Beyond these, some models read text without meaning. If rotations depend on the longest row of a batch (`longrope`,
    `dynamic`), a response's likelihood would depend on its neighbours. Such models are limited to the length at which
    their rotations change.

    Raises:
        ValueError: they may be longer; names the largest possible `engine.max_prompt_tokens`.
    """
    config = model.config.get_text_config()
    positions, why = getattr(config, "max_position_embeddings", None), "reads"
    for rope in _rotations(config):
        if rope.get("rope_type") in ("longrope", "dynamic"):
            original = rope.get("original_max_position_embeddings")
            original = original or getattr(config, "original_max_position_embeddings", None)
            positions, why = original or positions, f"reads alike whatever else is in a batch ({rope['rope_type']})"
    if positions is None or max_prompt_tokens + max_new_tokens <= positions:
        return
    left = positions - max_new_tokens
    remedy = f"Set engine.max_prompt_tokens={left} or less." if left > 0 else "Lower both."
    raise ValueError(
        f"engine.max_prompt_tokens={max_prompt_tokens} and responses of {max_new_tokens} tokens "
        f"(rollout.max_new_tokens) are more than the {positions} tokens that {type(model).__name__} {why}. {remedy}"
    )


def _rotations(config: Any) -> list[dict[str, Any]]:
    """Return the parameters of the rotary embeddings: of all layers, or of each kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [value for value in parameters.values() if isinstance(value, dict)]
    return kinds or [parameters]
