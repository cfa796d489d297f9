"""Quantities that are computed for all rows before the weights change: log-probabilities of each policy, and
entropies."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hgpo_gym.policies.base import TokenReading, TokenRecord
from hgpo_gym.policies.likelihood import measure
from hgpo_gym.processes import Processes
from hgpo_gym.trainers.update.conversations import by_conversation, joined
from hgpo_gym.trainers.update.samples import TrainingSample
from hgpo_gym.trainers.update.settings import TrainerSettings
from hgpo_gym.trainers.update.weights import Weights


def with_old(
    rows: Sequence[TrainingSample],
    policy: Weights,
    reads: Sequence[str | TokenReading],
    settings: TrainerSettings,
    temperature: float,
    processes: Processes,
) -> list[TrainingSample]:
    """Return the rows with measurements of the trainer's weights before the update: `old_logprobs`, and in `before`
    the columns that `reads` names."""
    measured = _measured_rows(rows, policy, ("logprobs", *reads), settings, temperature, processes)
    return [
        replace(row, old_logprobs=values.pop("logprobs"), before=values)
        for row, values in zip(rows, measured, strict=True)
    ]


def with_reference(
    rows: Sequence[TrainingSample],
    reference: Weights,
    settings: TrainerSettings,
    temperature: float,
    processes: Processes,
) -> list[TrainingSample]:
    """Return the rows with the reference policy's log-probabilities."""
    measured = _measured_rows(rows, reference, ("logprobs",), settings, temperature, processes)
    return [replace(row, reference=values["logprobs"]) for row, values in zip(rows, measured, strict=True)]


def mean_entropies(
    records: Sequence[TokenRecord], policy: Weights, settings: TrainerSettings, temperature: float, processes: Processes
) -> np.ndarray:
    """Return float64[N], nats: for each record, the mean entropy of the distributions that its choices are drawn
    from. The trainer's weights before the update give the distributions. A record without a choice has 0."""
    row_indices = [index for index, tokens in enumerate(records) if len(tokens.choices)]
    entropies = np.zeros(len(records), dtype=np.float64)
    measured = _measured(
        [records[index] for index in row_indices], policy, ("entropy",), settings, temperature, processes
    )
    for index, values in zip(row_indices, measured, strict=True):
        entropies[index] = values["entropy"].mean(dtype=np.float64)
    return entropies


def _measured_rows(
    rows: Sequence[TrainingSample],
    weights: Weights,
    reads: Sequence[str | TokenReading],
    settings: TrainerSettings,
    temperature: float,
    processes: Processes,
) -> list[dict[str, np.ndarray]]:
    """Measure the rows, in the sequences of `trainer.rows`."""
    sequences = by_conversation(rows) if settings.rows == "episode" else [[row] for row in rows]
    records = [joined([row.tokens for row in sequence]) for sequence in sequences]
    of_row: dict[int, dict[str, np.ndarray]] = {}
    for sequence, columns in zip(
        sequences, _measured(records, weights, reads, settings, temperature, processes), strict=True
    ):
        offsets = np.cumsum([len(row.behaviour) for row in sequence])[:-1]
        parts = {name: np.split(values, offsets) for name, values in columns.items()}
        of_row |= {id(row): {name: parts[name][place] for name in parts} for place, row in enumerate(sequence)}
    return [of_row[id(row)] for row in rows]


def _measured(
    records: Sequence[TokenRecord],
    weights: Weights,
    reads: Sequence[str | TokenReading],
    settings: TrainerSettings,
    temperature: float,
    processes: Processes,
) -> list[dict[str, np.ndarray]]:
    """Measure the records; processes share the work, and each returns the results of all."""
    with weights.gathered():
        local_values = measure(
            weights.policy,
            processes.share(records),
            reads,
            temperature=temperature,
            max_batch_tokens=settings.max_batch_tokens,
            precision=settings.precision,
        )
    return processes.gather(local_values)
