"""Batches of sequences under a budget of padded tokens."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest


def length_sorted_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences of similar length, longest first; a batch takes at most `max_tokens` when padded.

    A sequence that is longer than `max_tokens` gets a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def dealt_batches(lengths: Sequence[int], max_tokens: int, hands: int) -> list[list[list[int]]]:
    """Length-sorted batches for each of several processes, as many for each.

    Sequences are dealt out in order of length, so that every process has as many and as long ones as the others, or
    nearly. Where it has a batch less, its last one is empty.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    dealt = [order[hand::hands] for hand in range(hands)]
    batches = [
        [[own[place] for place in batch] for batch in length_sorted_batches([lengths[i] for i in own], max_tokens)]
        for own in dealt
    ]
    return [list(hand) for hand in zip(*zip_longest(*batches, fillvalue=[]), strict=True)]
