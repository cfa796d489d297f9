"""Policies that choose among admissible actions by a small network's scores: an answer is one token, whose id is the
hash of its text, and what the network read of its moment goes along with it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from hgpo_gym.memory.keys import hash_text
from hgpo_gym.policies.base import (
    CannotAnswerError,
    Likelihood,
    Request,
    Response,
    Sampling,
    StepContext,
    TokenRecord,
    check_has_choices,
)
from hgpo_gym.policies.sampling import draw, likelihood_of_drawn, power_sums, uniform_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRecord(TokenRecord):
    """An answer with the features of all that it was chosen among.

    Attributes:
        features: of the answers; `allowed` has their ids.
        chosen: the number of this one.
    """

    features: Any
    chosen: int


class ScoringPolicy(ABC):
    """Draws an admissible action by a softmax over the scores of all of them.

    Attributes:
        kind: as `model.kind` has it.
        network: the class of the model, which `from_tensors` makes of its weights.
        model: gives the scores.
    """

    kind: ClassVar[str]
    network: ClassVar[Any]

    def __init__(self, model: torch.nn.Module):
        self.model: Any = model

    @abstractmethod
    def look(self, requests: Sequence[Request]) -> list[Any]:
        """What the model reads of each request. One by one they would be the same.

        Raises:
            CannotAnswerError: a request that it cannot choose for.
        """

    @abstractmethod
    def logits(self, features: Sequence[Any]) -> torch.Tensor:
        """float32[N, A], -inf beyond a moment's own choices."""

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """One response a request, in order; each depends on its own seed, not on what it is batched with.

        Raises:
            CannotAnswerError: see `look`.
        """
        self.model.eval()
        features = self.look(requests)
        numbers = np.concatenate([uniform_numbers(request.seed, 1) for request in requests])
        chosen, logprobs = draw(self.logits(features), sampling, numbers)
        drawn = zip(requests, features, chosen.tolist(), logprobs.numpy()[:, None], strict=True)
        return [
            Response(request.answers[index], _record(request, own, index, logprob))
            for request, own, index, logprob in drawn
        ]

    def record(self, request: Request, choice: str) -> ChosenRecord:
        """The record of a choice that somebody else made."""
        (features,) = self.look([request])
        return _record(request, features, request.choices.index(choice), np.zeros(1, dtype=np.float32))

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float, sums: bool = False) -> Likelihood:
        """See `TrainablePolicy`."""
        own = [record for record in records if isinstance(record, ChosenRecord)]
        logits = self.logits([record.features for record in own]) / temperature
        drawn = likelihood_of_drawn(logits, torch.tensor([record.chosen for record in own]))
        more = (torch.full((len(records),), temperature**-2), *power_sums(logits)) if sums else ()
        return Likelihood(*drawn, torch.arange(len(records)), *more)

    def updated(self) -> None:  # noqa: B027 - of TrainablePolicy
        """Nothing to do: it generates with the model itself."""

    def save(self, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
        """One file; `load` reads it."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({**self.model.state_dict(), **(weights or {})}, folder / self._file())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The policy that was saved in `folder`. Raises FileNotFoundError if there is none of this kind."""
        path = folder / cls._file()
        if not path.exists():
            raise FileNotFoundError(
                f"No {cls.kind} policy in {folder}: expected {path.name}, as runs with model={cls.kind} leave it."
            )
        return cls(cls.network.from_tensors(load_file(path)))

    @classmethod
    def _file(cls) -> str:
        return f"{cls.kind}.safetensors"


def step_context_of(request: Request, kind: str) -> StepContext:
    """What a request is about.

    Raises:
        CannotAnswerError: it has no choices, or no moment.
    """
    check_has_choices(request.choices, request.role, kind)
    if request.step_context is None:
        raise CannotAnswerError(f"A {kind} acts on the moments of an episode: ask it by a rollout.")
    return request.step_context


def _record(request: Request, features: Any, chosen: int, logprobs: np.ndarray) -> ChosenRecord:
    ids = choice_ids(request.choices)
    return ChosenRecord(_PROMPT, ids[chosen, None], logprobs, (ids,), features=features, chosen=chosen)


_PROMPT = np.zeros(1, dtype=np.int64)
"""The tokens of every prompt: nothing reads them."""


@lru_cache(maxsize=1 << 14)
def choice_ids(choices: tuple[str, ...]) -> np.ndarray:
    """int64[A]: token ids of choices, the hashes of their texts."""
    return np.array([hash_text(choice) for choice in choices], dtype=np.uint64).view(np.int64)
