"""The engines that generate a language model's responses, by `engine.kind`, and the settings of each.

This module needs no torch: `hgpo-gym play` and `--show-config` compose settings without it.
"""

import pkgutil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from hgpo_gym.registry import Choice, Registry, follows
from hgpo_gym.section import SettingsSection, parse_section

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.policies.base import TrainablePolicy

Constraint = Literal["none", "admissible"]


class EngineSettings(SettingsSection):
    """The settings that every engine has.

    Args:
        constrain: `admissible`: every response is one of the admissible actions, drawn from the model's distribution
            over them, and the loss uses the log-probabilities under the same constraint; small models need it. `none`:
            free text.
        max_prompt_tokens: the most tokens of a prompt. A longer one loses its oldest past steps; if it is still too
            long, the text after the task is cut (metric prompt_cut_share). Together with rollout.max_new_tokens it must
            fit the model's positions.
        chat_template_kwargs: further arguments of the chat template, such as {enable_thinking: false} of Qwen3.
        template_date: the day for a chat template that shows the date, such as '2026-11-28'; null takes the day on
            which a run begins, which its config.yaml keeps.
        stop: texts that end a free response, such as ['</action>']. The response keeps the text, and its tokens are
            trained. The end tokens of chat template, tokenizer and generation config end it too.
        stop_token_ids: further tokens that end a free response.

    Attributes:
        policy_class: the policy that generates by the engine, `"module:Class"`. It takes a model, a tokenizer and these
            settings as keywords.
    """

    policy_class: ClassVar[str]

    constrain: Constraint = "admissible"
    max_prompt_tokens: PositiveInt = 4096
    chat_template_kwargs: dict[str, Any] = Field(default={})
    template_date: str | None = None
    stop: list[str] = Field(default=[])
    stop_token_ids: list[int] = Field(default=[])

    def policy(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> "TrainablePolicy":
        """Return a policy of this model that generates by the engine."""
        return pkgutil.resolve_name(self.policy_class)(model, tokenizer, **dict(self))


@follows(precision="trainer.precision")
class TransformersSettings(EngineSettings):
    """Generation by transformers: prompts are read in batches of similar length, responses are written side by side.

    Args:
        max_batch_tokens: padded tokens of prompts in one forward pass. Small passes are the fast ones on a CPU; a GPU
            wants 16384 or more.
        max_cache_tokens: padded tokens, of prompts and the longest responses, whose keys and values are kept at a time.
            A token takes 4 x layers x key-value heads x head size bytes in bfloat16: 28 kB of Qwen2.5-1.5B, 57 kB of
            Qwen2.5-7B.
        prefix_cache_tokens: tokens of conversations (memory=conversation) whose keys and values are kept until the next
            prompt, which then reads its last turn alone; 0 keeps none.
        precision: the format of generation, float32 (as the weights are) or bfloat16. The update's, so that their
            log-probabilities agree.
    """

    policy_class = "hgpo_gym.policies.language_model:LanguageModelPolicy"

    max_batch_tokens: PositiveInt = 2048
    max_cache_tokens: PositiveInt = 65536
    prefix_cache_tokens: NonNegativeInt = 65536
    precision: Literal["float32", "bfloat16"] = "float32"


class VllmSettings(EngineSettings):
    """Generation by vLLM in the training process, on the trainer's device (extra `vllm`). It batches continuously and
    computes common prefixes of prompts once. After every update the new weights are copied into the engine in place.

    Args:
        max_batch_tokens: tokens in one forward pass.
        max_model_len: the most tokens of prompt and response together; null takes the model's limit.
        max_num_seqs: responses that are written side by side.
        dtype: of vLLM's model; `auto` is bfloat16 on a GPU and float32 on a CPU. The trainer's model keeps its own.
        gpu_memory_utilization: the share of the GPU's memory that vLLM takes for weights and KV cache; the trainer
            needs the rest.
        kv_cache_gib: GiB for the KV cache; null takes the rest of that share on a GPU, and 1 on a CPU.
        enforce_eager: no compilation and no CUDA graphs: vLLM starts sooner and generates more slowly on a GPU.
        sleep_level: the GPU memory that vLLM frees during the update. 0: none. 1: its KV cache, and its weights move to
            main memory. 2: its KV cache and its weights, which are copied again before the next rollout or evaluation.
        adapter: how responses follow a LoRA adapter. merged: its product is added to the weights in float32, and all of
            them are copied after every update. requests: vLLM computes it beside weights that are copied once, and
            after an update the adapter alone is copied. Both round in a dtype of 16 bits (docs/guides/gpu_memory.md).
        tensor_parallel_size: GPUs (NUMA nodes of a CPU) that vLLM divides the model over, the trainer's among them; for
            runs of one process. Weights then reach its processes through a file in /dev/shm.
        server: the address of a vLLM server, `http://host:port`, started as hgpo_gym/policies/vllm_server.py says; null
            runs vLLM in the training process. The server has its own values of the nine settings before this one,
            except max_num_seqs. One process alone can train with a server.
        server_weights: the folder through which weights reach the server, seen by both under the same name; null makes
            one in /tmp.
        server_timeout: seconds to wait for a response of the server to a request.
    """

    policy_class = "hgpo_gym.policies.vllm_policy:VllmPolicy"

    max_batch_tokens: PositiveInt = 8192
    max_model_len: PositiveInt | None = None
    max_num_seqs: PositiveInt = 256
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.3
    kv_cache_gib: PositiveFloat | None = None
    enforce_eager: bool = False
    sleep_level: Annotated[int, Field(ge=0, le=2)] = 0
    adapter: Literal["merged", "requests"] = "merged"
    tensor_parallel_size: PositiveInt = 1
    server: str | None = None
    server_weights: str | None = None
    server_timeout: PositiveFloat = 600.0

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        if self.server is not None and (self.adapter == "requests" or self.tensor_parallel_size > 1):
            raise ValueError(
                f"engine.server={self.server} with engine.adapter={self.adapter}, engine.tensor_parallel_size="
                f"{self.tensor_parallel_size}: these two are of vLLM in the training process. A server takes merged "
                "weights, and divides the model itself: vllm serve --tensor-parallel-size."
            )
        return self


ENGINES = Registry(
    "engine.kind",
    {"transformers": TransformersSettings, "vllm": VllmSettings},
    arguments=0,
    entry_points="hgpo_gym.engines",
)


def engine_settings(engine: Choice) -> EngineSettings:
    """Return the settings of an engine. Raises ValueError for an unknown kind, an unknown option or a wrong value."""
    return parse_section(ENGINES.find(engine.name), engine.options, "engine.")  # type: ignore[arg-type]
