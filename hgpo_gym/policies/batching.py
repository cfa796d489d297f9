"""Batches of sequences: under a budget of padded tokens, and apart by the adapter that computes them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

Item = TypeVar("Item")

MOST_PADDING = 0.1
LEAST_SHARE = 1 / 8
"""A batch that has this share of the budget takes no sequence that would bring its padding above the tenth."""


def by_adapter(items: Iterable[Item], adapter_of: Callable[[Item], str | None]) -> list[list[Item]]:
    """The items of each adapter, in the order in which adapters and items come; without items one empty list."""
    apart: dict[str | None, list[Item]] = {}
    for item in items:
        apart.setdefault(adapter_of(item), []).append(item)
    return list(apart.values()) or [[]]


def length_sorted_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences of similar length, longest first; a batch takes at most `max_tokens` when padded, and fewer
    where the rest is much shorter.

    A sequence that is longer than `max_tokens` gets a batch of its own.
    """
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch:
            longest = lengths[batch[0]]
            padded = longest * (len(batch) + 1)
            wasteful = tokens + lengths[index] < (1 - MOST_PADDING) * padded
            if padded > max_tokens or (wasteful and longest * len(batch) >= LEAST_SHARE * max_tokens):
                yield batch
                batch, tokens = [], 0
        batch.append(index)
        tokens += lengths[index]
    if batch:
        yield batch


def shard_batches(lengths: Sequence[int], max_tokens: int, world_size: int) -> list[list[list[int]]]:
    """Length-sorted batches for each of several processes, as many for each.

    Sequences are dealt out in order of length, so that every process has as many and as long ones as the others, or
    nearly. Where it has fewer batches, its last ones are empty.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    shards = [order[rank::world_size] for rank in range(world_size)]
    batches = [
        [[own[place] for place in batch] for batch in length_sorted_batches([lengths[i] for i in own], max_tokens)]
        for own in shards
    ]
    return [list(rank) for rank in zip(*zip_longest(*batches, fillvalue=[]), strict=True)]
