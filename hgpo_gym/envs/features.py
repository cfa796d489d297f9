"""Texts as arrays of fixed size: signed counts of hashed n-grams. The hash also gives the sign, so that collisions
cancel on average (feature hashing, Weinberger et al., 2009). The same text gives the same numbers on every machine and
in every process."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

_WORD = re.compile(r"\w+|[^\w\s]")
LARGEST_COUNT = 127


@dataclass(frozen=True, kw_only=True)
class TextFeatures:
    """Features of texts and admissible actions as int8[length]: the counts of the texts, then a 1 and the action's
    counts for each of the first `actions` admissible actions; 0 for missing actions.

    Attributes:
        size: places for the n-grams of the texts.
        longest: the longest n-gram, in words.
        actions: how many admissible actions are described, each at its index; 0 for none.
        action_size: places for the n-grams of each of them.

    Raises:
        ValueError: a number that is too small.
    """

    size: int = 256
    longest: int = 2
    actions: int = 0
    action_size: int = 32

    def __post_init__(self) -> None:
        for name, least in {"size": 1, "longest": 1, "actions": 0, "action_size": 1}.items():
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name}={value}: must be at least {least}.")

    @property
    def length(self) -> int:
        return self.size + self.actions * (1 + self.action_size)

    def __call__(self, texts: Mapping[str, str], admissible_actions: Sequence[str] = ()) -> np.ndarray:
        """Return int8[length]. The same n-gram has another index in a text of another name."""
        features = np.zeros(self.length, dtype=np.int8)
        features[: self.size] = hashed_counts(texts, self.size, self.longest)
        blocks = features[self.size :].reshape(self.actions, 1 + self.action_size)
        for block, action in zip(blocks, admissible_actions, strict=False):
            block[0] = 1
            block[1:] = _action_counts(action, self.action_size, self.longest)
        return features

    def split(self, features: Any) -> tuple[Any, Any, Any]:
        """Split arrays or tensors [N, length] into the texts [N, size], whether there is an action bool[N, actions],
        and the actions [N, actions, action_size]."""
        blocks = features[:, self.size :].reshape(len(features), self.actions, 1 + self.action_size)
        return features[:, : self.size], blocks[:, :, 0] > 0, blocks[:, :, 1:]

    def unit_length(self, features: np.ndarray) -> np.ndarray:
        """Return float32[length]: the part of the texts and the part of each action scaled to Euclidean length 1."""
        texts, present, actions = self.split(features[None].astype(np.float32))
        blocks = np.concatenate([present[:, :, None], _unit(actions)], axis=2, dtype=np.float32)
        return np.concatenate([_unit(texts)[0], blocks.ravel()])


def hashed_counts(texts: Mapping[str, str], size: int, longest: int) -> np.ndarray:
    """Return int8[size]: each n-gram of up to `longest` words adds 1 or -1 at an index; its hash gives both."""
    codes = np.array([_hash(f"{name}\0{ngram}") for name, text in texts.items() for ngram in ngrams(text, longest)])
    if not len(codes):
        return np.zeros(size, dtype=np.int8)
    # The lowest bit gives the sign and the other bits the index, so that the two are independent.
    counts = np.bincount(codes // 2 % size, weights=1.0 - 2.0 * (codes % 2), minlength=size)
    return counts.clip(-LARGEST_COUNT, LARGEST_COUNT).astype(np.int8)


def ngrams(text: str, longest: int) -> list[str]:
    """Return every sequence of 1 to `longest` words (or signs) of a text, case ignored."""
    words = _WORD.findall(text.lower())
    return [
        " ".join(words[start : start + count])
        for count in range(1, longest + 1)
        for start in range(len(words) - count + 1)
    ]


@lru_cache(maxsize=1 << 16)
def _hash(ngram: str) -> int:
    # 7 bytes fit a signed int64. Texts may hold lone surrogates, which plain UTF-8 refuses.
    digest = hashlib.blake2b(ngram.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    return int.from_bytes(digest, "little")


@lru_cache(maxsize=1 << 14)
def _action_counts(action: str, size: int, longest: int) -> np.ndarray:
    return hashed_counts({"action": action}, size, longest)


def _unit(vectors: np.ndarray) -> np.ndarray:
    # The lower bound avoids 0 / 0 for a text without words.
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
