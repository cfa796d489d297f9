"""The engines that generate a language model's responses, by `engine.kind`."""

from typing import TYPE_CHECKING

from hgpo_gym.registry import Choice, Registry

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.policies.base import TrainablePolicy

ENGINES = Registry(
    "engine.kind",
    {
        "transformers": "hgpo_gym.policies.language_model:LanguageModelPolicy",
        "vllm": "hgpo_gym.policies.vllm_policy:VllmPolicy",
    },
    arguments=2,
    entry_points="hgpo_gym.engines",
)


def make_policy(engine: Choice, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> "TrainablePolicy":
    """Return a policy that generates by the engine. Raises ValueError for an unknown kind or option."""
    return ENGINES.bind(engine)(model, tokenizer)
