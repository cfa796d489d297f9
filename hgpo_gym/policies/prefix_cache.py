"""The keys and values of conversations: the next prompt of a conversation reads its last turn alone."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from transformers.cache_utils import Cache

from hgpo_gym.policies.kv_cache import GrowingLayer, states_of


class Prefix(NamedTuple):
    """The keys and values of the first tokens of a conversation: the only row of `cache`, in `length` columns."""

    cache: Cache
    length: int


class PrefixCache:
    """Keeps prefixes, by the tokens of the conversation, until the next prompt takes them.

    Args:
        max_tokens: of all kept prefixes together; the oldest are dropped first. 0 keeps none.
    """

    def __init__(self, max_tokens: int):
        self.max_tokens, self._tokens = max_tokens, 0
        self._kept: OrderedDict[tuple[str | None, bytes], Prefix] = OrderedDict()

    def keep(
        self, conversation: np.ndarray, adapter: str | None, cache: Cache, row: int, end: int, length: int
    ) -> None:
        """Keep the `length` columns before `end` of a row, as a copy.

        Args:
            conversation: int64[P + R], its tokens, of which the columns hold the first ones.
            adapter: by which they were computed.
            cache: of a batch.
            row, end: the place of the conversation in it.
            length: number of columns.
        """
        key = (adapter, conversation.tobytes())
        if length > self.max_tokens or key in self._kept:
            return
        columns = slice(end - length, end)
        layers: list[Any] = []  # Cache takes a list of several kinds of layers
        for layer in cache.layers:
            keys, values = (states[row : row + 1, :, columns].clone() for states in states_of(layer))
            layers.append(GrowingLayer(keys, values, length))
        self._kept[key] = Prefix(Cache(layers=layers), length)
        self._tokens += length
        while self._tokens > self.max_tokens:
            self._tokens -= self._kept.popitem(last=False)[1].length

    def take(self, prompt: np.ndarray, adapter: str | None, lengths: Iterable[int]) -> Prefix | None:
        """Return what is kept of the longest conversation that the prompt begins with, and keep it no longer.

        Args:
            prompt: int64[P].
            adapter: that shall read the prompt.
            lengths: the lengths of conversations that it may begin with, longest first.
        """
        for length in lengths:
            prefix = self._kept.pop((adapter, prompt[:length].tobytes()), None)
            if prefix is not None:
                self._tokens -= prefix.length
                return prefix
        return None

    def forget(self) -> None:
        """Keep nothing: the weights change, or new episodes begin."""
        self._kept.clear()
        self._tokens = 0
