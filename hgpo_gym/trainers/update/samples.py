"""Training samples: the responses that had a choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hgpo_gym.advantages import Advantages, StepBatch
from hgpo_gym.policies.base import TokenRecord


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A step that had a choice. Arrays are float32[C], an entry for each choice.

    Attributes:
        tokens: prompt and response.
        advantages: the step's advantage, or one per token if the estimator returns them.
        behaviour: log-probabilities by the engine that drew the tokens, as recorded.
        trajectory: the episode, numbered through the whole rollout.
        group: the task group, numbered in the same way.
        old_logprobs: log-probabilities by the trainer before the update; None if nothing asks for them.
        reference: log-probabilities by the reference policy; None without one.
        before: other inputs of the objective's pre-pass, by the weights before the update.
        extras: other inputs of the objective, from its pre-pass and from the estimator.
    """

    tokens: TokenRecord
    advantages: np.ndarray
    behaviour: np.ndarray
    trajectory: int
    group: int
    old_logprobs: np.ndarray | None = None
    reference: np.ndarray | None = None
    before: Mapping[str, np.ndarray] = field(default_factory=dict)
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def loss_mask(self) -> np.ndarray:
        """Return 1 for tokens that count in means, 0 for the others."""
        return self.extras.get("loss_mask", np.ones_like(self.behaviour))

    @property
    def zero_advantage(self) -> bool:
        """Return True if all advantages are 0, so that no objective learns from the sample."""
        return not self.advantages.any()


def make_samples(
    tokens: Sequence[TokenRecord], batch: StepBatch, advantages: Advantages | np.ndarray
) -> list[TrainingSample]:
    """Return a sample for each record that is trained on and has a choice. Responses without a choice have
    probability 1 and teach nothing.

    Args:
        tokens: a record for each row of the batch.
        batch: the steps.
        advantages: float64[N], or an estimator's `Advantages`.

    Raises:
        ValueError: the number of token advantages is not the number of tokens in the response.
    """
    credit = advantages if isinstance(advantages, Advantages) else Advantages(advantages)
    rows = []
    for index, record in enumerate(tokens):
        choices = record.choices
        if len(choices) and (batch.trained is None or batch.trained[index]):
            token_advantages = credit.tokens[index] if credit.tokens is not None else None
            if token_advantages is not None and len(token_advantages) != len(record.token_ids):
                raise ValueError(
                    f"Step {index}: advantages of {len(token_advantages)} tokens for a response of "
                    f"{len(record.token_ids)}: an estimator gives one a token of the response, "
                    "those without a choice included, or None."
                )
            rows.append(
                TrainingSample(
                    tokens=record,
                    advantages=_repeat(credit.values[index], choices)
                    if token_advantages is None
                    else token_advantages[choices].astype(np.float32),
                    behaviour=record.logprobs[choices],
                    trajectory=int(batch.trajectory[index]),
                    group=int(batch.group[index]),
                    extras={name: _repeat(column[index], choices) for name, column in credit.extras.items()},
                )
            )
    return rows


def per_token(values: Sequence[np.ndarray | None], device: torch.device) -> torch.Tensor:
    """Concatenate the rows' values to float32[T]. No value may be missing."""
    return torch.from_numpy(np.concatenate(values, dtype=np.float32)).to(device)  # type: ignore[arg-type]


def _repeat(value: float, choices: np.ndarray) -> np.ndarray:
    return np.full(len(choices), value, dtype=np.float32)
