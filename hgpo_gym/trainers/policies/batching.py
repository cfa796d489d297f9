"""Batches of sequences under a budget of padded tokens."""

from collections.abc import Iterator, Sequence


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
