"""Logits processor of vLLM for `engine.constrain=admissible`: it follows a token trie for each request.

vLLM imports it by name in the process that samples. It leaves only the tokens that the trie allows, as `TokenRecord`
records them. vLLM computes log-probabilities afterwards, so that they are renormalised over these tokens.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from hgpo_gym.policies.trie import TokenTrie
from hgpo_gym.policies.vllm_requests import ADMISSIBLE_RESPONSES


class AdmissibleResponses(LogitsProcessor):
    """Logits processor that restricts each request with a trie to the tokens that the trie allows next.

    Once a single response is left, only the end-of-text token is allowed: the caller knows the rest. Most requests end
    earlier, at one of the trie's deciding tokens.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool):  # noqa: ARG002 - vLLM's signature
        self._walks: dict[int, _Walk] = {}

    def is_argmax_invariant(self) -> bool:
        """Return False: the likeliest token may be forbidden."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests that were added to, removed from or moved within the batch."""
        process_dict_updates(self._walks, batch_update, _begin)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits [requests, vocabulary] with -inf for forbidden tokens."""
        if not self._walks:
            return logits
        allowed = {row: walk.allowed() for row, walk in self._walks.items()}
        rows = np.repeat(list(allowed), [len(ids) for ids in allowed.values()])
        # Rows of requests without a trie stay unrestricted.
        forbidden = torch.zeros_like(logits, dtype=torch.bool)
        forbidden[list(allowed)] = True
        forbidden[rows, np.concatenate(list(allowed.values()))] = False
        return logits.masked_fill(forbidden, float("-inf"))


class _Walk:
    """The position of a response in its trie; vLLM appends to `token_ids`."""

    def __init__(self, trie: TokenTrie, token_ids: Sequence[int]):
        self._trie, self._token_ids = trie, token_ids
        self._node, self._followed = 0, 0

    def allowed(self) -> np.ndarray:
        # vLLM appends to the same list: follow only the tokens that are new.
        for token in self._token_ids[self._followed :]:
            self._node = self._trie.child(self._node, token)
        self._followed = len(self._token_ids)
        if self._trie.forced(self._node):
            return np.array([self._trie.end_of_text])
        return self._trie.allowed(self._node)


def _begin(params: SamplingParams, _prompt_ids: list[int] | None, token_ids: list[int]) -> _Walk | None:
    argument = (params.extra_args or {}).get(ADMISSIBLE_RESPONSES)
    return None if argument is None else _Walk(_trie(argument), token_ids)


_trie = lru_cache(maxsize=10_000)(TokenTrie.from_json)
