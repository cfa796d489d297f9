"""Rows of a conversation as one sequence: one forward pass reads an episode, instead of one a turn.

The response stays the unit of the loss. Only the pass over the model is shared, so that loss and gradients are those
of separate rows for every objective and aggregation.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from hgpo_gym.policies.base import TokenRecord


class TrainingRow(Protocol):
    """A row of an episode: a training sample or a record."""

    @property
    def tokens(self) -> TokenRecord: ...

    @property
    def trajectory(self) -> int: ...


AnyRow = TypeVar("AnyRow", bound=TrainingRow)

_NOT_DRAWN = np.zeros(0, dtype=np.int64)
"""The allowed tokens of a position that the policy has not drawn, such as those of an observation: it has no choice."""


def by_conversation(rows: Iterable[AnyRow]) -> list[list[AnyRow]]:
    """Return the rows of each sequence, in order. A row joins a sequence of its episode if its prompt begins with all
    tokens of that sequence, and begins a new one otherwise."""
    of_episode: dict[int, list[list[AnyRow]]] = {}
    sequences: list[list[AnyRow]] = []
    for row in rows:
        open_sequences = of_episode.setdefault(row.trajectory, [])
        # The latest sequence is nearly always the one; teams have one for each role.
        sequence = next((rows for rows in reversed(open_sequences) if continues(row.tokens, rows[-1].tokens)), None)
        if sequence is None:
            sequence = []
            open_sequences.append(sequence)
            sequences.append(sequence)
        sequence.append(row)
    return sequences


def continues(record: TokenRecord, earlier: TokenRecord) -> bool:
    """Return True if the prompt begins with the prompt and response of the earlier record, token for token."""
    prompt, start, end = record.prompt_ids, len(earlier.prompt_ids), len(earlier)
    return (
        record.adapter == earlier.adapter
        and len(prompt) >= end
        and np.array_equal(prompt[start:end], earlier.token_ids)
        and np.array_equal(prompt[:start], earlier.prompt_ids)
    )


def drawn(records: Sequence[TokenRecord]) -> np.ndarray:
    """Return bool[tokens] of records that continue one another, after the first prompt: true for their responses."""
    start = len(records[0].prompt_ids)
    mask = np.zeros(len(records[-1]) - start, dtype=np.bool_)
    for record in records:
        mask[len(record.prompt_ids) - start : len(record) - start] = True
    return mask


def joined(records: Sequence[TokenRecord]) -> TokenRecord:
    """Return one record of records that continue one another. Its choices are those of all, in order."""
    if len(records) == 1:
        return records[0]
    start, last = len(records[0].prompt_ids), records[-1]
    count = len(last) - start
    logprobs = np.zeros(count, dtype=np.float32)
    allowed: list[np.ndarray | None] = [_NOT_DRAWN] * count
    for record in records:
        response = slice(begin := len(record.prompt_ids) - start, begin + len(record.token_ids))
        logprobs[response] = record.logprobs
        allowed[response] = record.allowed or [None] * len(record.token_ids)
    ids = np.concatenate((last.prompt_ids[start:], last.token_ids))
    return TokenRecord(records[0].prompt_ids, ids, logprobs, tuple(allowed), last.adapter)
