"""Batches of sequences: within a budget of padded tokens, and separate for each adapter."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

Item = TypeVar("Item")

MOST_PADDING = 0.1
LEAST_SHARE = 1 / 8
"""A batch with at least this share of the budget gets no sequence that would raise its padding above `MOST_PADDING`."""


def by_adapter(items: Iterable[Item], adapter_of: Callable[[Item], str | None]) -> list[list[Item]]:
    """Return the items of each adapter. Adapters and items keep their order; without items, return one empty list."""
    groups: dict[str | None, list[Item]] = {}
    for item in items:
        groups.setdefault(adapter_of(item), []).append(item)
    return list(groups.values()) or [[]]


def length_sorted_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield indices of sequences of similar length, longest first. A padded batch has at most `max_tokens`, and fewer
    if the remaining sequences are much shorter.

    A sequence that is longer than `max_tokens` is a batch by itself.
    """
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch:
            longest = lengths[batch[0]]
            padded = longest * (len(batch) + 1)
            # The batch would be mostly padding: its real tokens against its padded size with this sequence.
            wasteful = tokens + lengths[index] < (1 - MOST_PADDING) * padded
            if padded > max_tokens or (wasteful and longest * len(batch) >= LEAST_SHARE * max_tokens):
                yield batch
                batch, tokens = [], 0
        batch.append(index)
        tokens += lengths[index]
    if batch:
        yield batch


def shard_batches(lengths: Sequence[int], max_tokens: int, world_size: int) -> list[list[list[int]]]:
    """Return length-sorted batches for each process, the same number for each.

    Sequences are dealt out in order of length, so that all processes have nearly the same number and lengths. If a
    process has fewer batches, its last ones are empty.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    shards = [order[rank::world_size] for rank in range(world_size)]
    batches = [
        [
            [shard[position] for position in batch]
            for batch in length_sorted_batches([lengths[i] for i in shard], max_tokens)
        ]
        for shard in shards
    ]
    # zip_longest adds the empty batches, and transposes; zip transposes back.
    return [list(rank) for rank in zip(*zip_longest(*batches, fillvalue=[]), strict=True)]
