"""What an update trains on: the answers that had a choice, and how likely each policy involved finds their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hgpo_gym.trainers.policies.base import TokenRecord
from hgpo_gym.trainers.policies.likelihood import score
from hgpo_gym.trainers.processes import Processes
from hgpo_gym.trainers.settings import TrainerSettings
from hgpo_gym.trainers.update.weights import Weights


@dataclass(frozen=True, slots=True)
class Row:
    """A step that had a choice. Log-probabilities are float32[C], one for each choice.

    Attributes:
        tokens: prompt and answer.
        advantage: of the step.
        behaviour: by the engine that drew the tokens, as recorded.
        old: by the trainer before the update, from the same weights; None where that was not asked for.
        reference: by the reference policy; None without one.
    """

    tokens: TokenRecord
    advantage: float
    behaviour: np.ndarray
    old: np.ndarray | None
    reference: np.ndarray | None


def make_rows(
    policy: Weights,
    reference: Weights | None,
    tokens: Sequence[TokenRecord],
    advantages: np.ndarray,
    settings: TrainerSettings,
    temperature: float,
    processes: Processes,
) -> list[Row]:
    """A row for each record with a choice; answers without one have probability 1 and teach nothing. Processes that
    have the same records share the work, and all get all rows."""
    choices = [record.choices for record in tokens]
    chosen = [index for index, positions in enumerate(choices) if len(positions)]
    records = [tokens[index] for index in chosen]

    def scores(weights: Weights | None) -> Sequence[np.ndarray | None]:
        if weights is None:
            return [None] * len(records)
        with weights.gathered():
            own = score(
                weights.scorer,
                processes.share(records),
                temperature=temperature,
                max_batch_tokens=settings.max_batch_tokens,
                precision=settings.precision,
            )
        return processes.gather(own)

    old = scores(policy if settings.needs_old_logprobs else None)
    return [
        Row(tokens[index], float(advantages[index]), tokens[index].logprobs[choices[index]], own, by_reference)
        for index, own, by_reference in zip(chosen, old, scores(reference), strict=True)
    ]


def per_token(values: Sequence[np.ndarray | None], device: torch.device) -> torch.Tensor:
    """float32[T]: the rows' values one after the other; none may be missing."""
    return torch.from_numpy(np.concatenate(values)).to(device)  # type: ignore[arg-type]
