"""Batches of sequences under a budget of padded tokens."""

from collections.abc import Iterator, Sequence


MOST_PADDING = 0.1
LEAST_SHARE = 1 / 8
"""A batch that has this share of the budget takes no sequence that would bring its padding above the tenth."""


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
