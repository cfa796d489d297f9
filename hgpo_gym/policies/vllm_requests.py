"""Requests to vLLM, in this process or a server, and its replies; without vLLM itself."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from hgpo_gym.policies.base import Request, Sampling

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from hgpo_gym.policies.generation import GeneratedSequence

CONSTRAINT = "hgpo_gym.policies.vllm_constraint:AdmissibleResponses"
"""The name by which vLLM finds the logits processor."""

WORKER = "hgpo_gym.policies.vllm_worker.TrainerWeights"
"""The name by which vLLM finds what takes the trainer's weights."""

SCORING = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0, "detokenize": False}
"""Values of `SamplingParams` that ask for the log-probabilities of the prompt's tokens."""

ADMISSIBLE_RESPONSES = "admissible_responses"
"""The extra argument of a request that it reads."""


Stopped = Callable[[list[int]], bool]


class Completion(NamedTuple):
    """A response that is complete. Log-probabilities are those of the distribution that the tokens were drawn from;
    `prompt_cached`: see `TokenRecord`."""

    name: str
    token_ids: list[int]
    logprobs: list[float]
    prompt_cached: int = 0


class InferenceEngine(Protocol):
    """vLLM as a `VllmPolicy` uses it.

    Attributes:
        max_model_len: the most tokens of a prompt with its response.
        takes_adapter: it computes a LoRA adapter beside its weights; otherwise it is given weights with its product.
        dtype: the format that it computes in, like `bfloat16`.
    """

    max_model_len: int
    takes_adapter: bool
    dtype: str

    def submit(
        self, name: str, prompt_ids: list[int], parameters: Mapping[str, Any], stopped: Stopped | None = None
    ) -> None:
        """Ask for a response, under a name that no open one has, with `sampling_parameters`. Nothing need be written of
        it once it has `stopped`, which says so of its tokens up to now; more may be."""

    def step(self) -> list[Completion]:
        """Go on writing; returns the responses that are complete now."""

    def load(self, weights: "Iterable[tuple[str, torch.Tensor]]", tied_head: str | None) -> list[str]:
        """Put weights in place of the engine's, by their names in a checkpoint. The output head is among them, also one
        that is tied to the embeddings: then `tied_head` is its name. Returns the engine's weights that were not."""

    def logprobs(self, token_ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first. No request may be running."""

    def load_adapter(self, folder: "Path") -> None:
        """Answer by a saved adapter from now on, in place of the last one, where it `takes_adapter`."""

    def wake(self, part: str) -> None:
        """Make room again for a part, `weights` or `kv_cache`, of what it gave back when it was put to sleep; nothing
        where it was not."""

    def sleep(self) -> bool:
        """Give back the memory of its device, if it is told to do so. Returns whether its weights are lost by that."""

    def forget(self) -> None:
        """Give up open requests and what is kept of earlier prompts."""


def check_device(device: str) -> None:
    """Refuse a GPU that is not the first that the process sees: vLLM beside the trainer takes that one, whatever the
    model is on."""
    kind, _, index = device.partition(":")
    if kind == "cuda" and index not in ("", "0"):
        raise ValueError(
            f"model.device={device} with engine=vllm: vLLM takes the first GPU that its process sees. Set the "
            f"environment variable CUDA_VISIBLE_DEVICES={index} and model.device=cuda."
        )


def sampling_parameters(
    request: Request, sequence: "GeneratedSequence", sampling: Sampling, ends: Collection[int]
) -> dict[str, Any]:
    """Return the arguments of vLLM's `SamplingParams`.

    A response that is held to a trie may end early, where only one of the trie's sequences is left.
    """
    parameters = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sequence.longest,
        "seed": _seed(request.seed),
        "logprobs": 0,
        "stop_token_ids": sorted(ends),
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
