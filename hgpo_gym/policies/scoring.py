"""Policies that choose among admissible actions by the scores of a small network.

A response is one token, whose id is the hash of its text. The network's features are kept with the record.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from hgpo_gym.memory.keys import hash_text
from hgpo_gym.policies.base import (
    CannotRespondError,
    Distributions,
    Likelihood,
    Request,
    Response,
    Sampling,
    StepContext,
    TokenRecord,
    check_has_choices,
)
from hgpo_gym.policies.sampling import draw, read_likelihood, uniform_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRecord(TokenRecord):
    """A response, with the features of all responses that it was chosen among.

    Attributes:
        features: of all responses; `allowed` has their ids.
        chosen: the index of this one.
    """

    features: Any
    chosen: int


class ScoringPolicy(ABC):
    """Draws an admissible action by a softmax over the scores of all of them.

    Attributes:
        kind: the value of `model.kind`.
        network: the class of the model; its `from_tensors` restores one from weights.
        model: computes the scores.
    """

    kind: ClassVar[str]
    network: ClassVar[Any]

    def __init__(self, model: torch.nn.Module):
        self.model: Any = model

    @abstractmethod
    def featurize(self, requests: Sequence[Request]) -> list[Any]:
        """Return the model's features of each request. They do not depend on the batch.

        Raises:
            CannotRespondError: a request without choices, or one that it cannot read.
        """

    @abstractmethod
    def logits(self, features: Sequence[Any]) -> torch.Tensor:
        """Return the scores float32[N, A], -inf beyond the choices of a step."""

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response for each request, in order. Each depends on its own seed, not on the batch.

        Raises:
            CannotRespondError: see `look`.
        """
        self.model.eval()
        features = self.featurize(requests)
        uniforms = uniform_numbers([request.seed for request in requests], 1)[:, 0]
        chosen, logprobs = draw(self.logits(features), sampling, uniforms)
        drawn = zip(requests, features, chosen.tolist(), logprobs.numpy()[:, None], strict=True)
        return [
            Response(request.allowed_responses[index], _record(request, request_features, index, logprob))
            for request, request_features, index, logprob in drawn
        ]

    def record(self, request: Request, choice: str) -> ChosenRecord:
        """Return the record of a given choice."""
        (features,) = self.featurize([request])
        return _record(request, features, request.choices.index(choice), np.zeros(1, dtype=np.float32))

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        logprobs, entropy = self.read_distributions(records, read_likelihood, temperature=temperature)
        return Likelihood(logprobs, entropy, torch.arange(len(records)))

    def read_distributions(
        self,
        records: Sequence[TokenRecord],
        reader: Callable[[Distributions], tuple[torch.Tensor, ...]],
        *,
        temperature: float,
    ) -> tuple[torch.Tensor, ...]:
        chosen_records = [record for record in records if isinstance(record, ChosenRecord)]
        logits = self.logits([record.features for record in chosen_records]) / temperature
        chosen = torch.tensor([record.chosen for record in chosen_records])
        return reader(Distributions(logits, chosen, torch.ones(len(records), 1), temperature))

    def updated(self) -> None:  # noqa: B027 - of TrainablePolicy
        """Do nothing: the policy generates with the model itself."""

    def save(self, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
        """Write one file, which `load` reads."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({**self.model.state_dict(), **(weights or {})}, folder / self._file())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the policy that was saved in `folder`. Raises FileNotFoundError if there is none of this kind."""
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
    """Return the step of a request.

    Raises:
        CannotRespondError: it has no choices, or no step.
    """
    check_has_choices(request.choices, request.role, kind)
    if request.step_context is None:
        raise CannotRespondError(f"A {kind} acts on the moments of an episode: ask it by a rollout.")
    return request.step_context


def _record(request: Request, features: Any, chosen: int, logprobs: np.ndarray) -> ChosenRecord:
    ids = choice_ids(request.choices)
    return ChosenRecord(_PROMPT, ids[chosen, None], logprobs, (ids,), features=features, chosen=chosen)


_PROMPT = np.zeros(1, dtype=np.int64)
"""The tokens of every prompt, a placeholder that nothing reads."""


@lru_cache(maxsize=1 << 14)
def choice_ids(choices: tuple[str, ...]) -> np.ndarray:
    """Return the token ids of choices, int64[A]: the hashes of their texts."""
    # Token ids are int64: the same 64 bits.
    return np.array([hash_text(choice) for choice in choices], dtype=np.uint64).view(np.int64)
