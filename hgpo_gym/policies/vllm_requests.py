"""Requests to vLLM and its completions, in this process or on a server. This module needs no vLLM."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from hgpo_gym.policies.base import Request, Sampling

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from hgpo_gym.policies.generation import GeneratedSequence

CONSTRAINT = "hgpo_gym.policies.vllm_constraint:AdmissibleResponses"
"""The import name of the logits processor."""

WORKER = "hgpo_gym.policies.vllm_worker.TrainerWeights"
"""The import name of the worker extension that loads the trainer's weights."""

SCORING = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0, "detokenize": False}
"""Arguments of `SamplingParams` that request the log-probabilities of the prompt's tokens."""

ADMISSIBLE_RESPONSES = "admissible_responses"
"""The extra argument of a request that the logits processor reads."""


Stopped = Callable[[list[int]], bool]


class Completion(NamedTuple):
    """Complete response, with log-probabilities under the sampling distribution; `prompt_cached`: see `TokenRecord`."""

    name: str
    token_ids: list[int]
    logprobs: list[float]
    prompt_cached: int = 0


class InferenceEngine(Protocol):
    """vLLM's engine, as `VllmPolicy` uses it.

    Attributes:
        max_model_len: the most tokens of a prompt with its response.
        takes_adapter: True if the engine computes a LoRA adapter; otherwise it loads merged weights.
        dtype: the format that it computes in, like `bfloat16`.
    """

    max_model_len: int
    takes_adapter: bool
    dtype: str

    def submit(
        self, name: str, prompt_ids: list[int], parameters: Mapping[str, Any], stopped: Stopped | None = None
    ) -> None:
        """Add a request under a new name. The engine may end it once `stopped(token_ids)` is true."""

    def step(self) -> list[Completion]:
        """Generate the next tokens. Returns the responses that are now complete."""

    def load(self, weights: "Iterable[tuple[str, torch.Tensor]]", tied_head: str | None) -> list[str]:
        """Replace the engine's weights, given by their names in a checkpoint. They include the output head; `tied_head`
        is its name if it is tied to the embeddings. Returns the names of the engine's weights that were not loaded."""

    def logprobs(self, token_ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first. No request may be running."""

    def load_adapter(self, folder: "Path") -> None:
        """Use this saved adapter from now on; only with `takes_adapter`."""

    def wake(self, part: str) -> None:
        """Allocate a part again, `weights` or `kv_cache`, that `sleep` has freed."""

    def sleep(self) -> bool:
        """Free the device's memory if `sleep_level` says so. Returns True if the weights are lost."""

    def forget(self) -> None:
        """Abort open requests and reset the prefix cache."""


def check_device(device: str) -> None:
    """Raise ValueError for another GPU than the first visible one, which vLLM uses wherever the model is."""
    kind, _, index = device.partition(":")
    if kind == "cuda" and index not in ("", "0"):
        raise ValueError(
            f"model.device={device} with engine=vllm: vLLM takes the first GPU that its process sees. Set the "
            f"environment variable CUDA_VISIBLE_DEVICES={index} and model.device=cuda."
        )


def sampling_parameters(
    request: Request, sequence: "GeneratedSequence", sampling: Sampling, end_token_ids: Collection[int]
) -> dict[str, Any]:
    """Return the arguments of vLLM's `SamplingParams`.

    A response with a trie may end early, when only one of the trie's sequences is left.
    """
    parameters = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sequence.longest,
        "seed": _seed(request.seed),
        "logprobs": 0,
        "stop_token_ids": sorted(end_token_ids),
        "detokenize": False,
    }
    if sequence.trie is not None:
        parameters["stop_token_ids"] = [sequence.trie.end_of_text, *sequence.trie.deciding]
        # One string: vLLM copies extra arguments deeply and sends them between processes.
        parameters["extra_args"] = {ADMISSIBLE_RESPONSES: sequence.trie.to_json()}
    return parameters


def _seed(seed: tuple[int, ...]) -> int:
    """Return a request's seed as one number of 63 bits, as vLLM expects."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1))
