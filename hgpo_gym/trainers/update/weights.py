"""The weights that a run trains, as its update sees them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from hgpo_gym.policies.base import Likelihood, LikelihoodModel, TokenRecord


class Weights:
    """The weights of a model, all of them in this process alone.

    Args:
        policy: reads them; whatever else has the same model reads them too.
    """

    def __init__(self, policy: LikelihoodModel):
        self.policy = policy

    def read_by(self, policy: LikelihoodModel) -> "Weights":
        """The same weights, for another policy with the same model."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """The policy's likelihood for training. Backward passes leave in `grad` the mean over processes; every process
        must do as many."""
        return self.policy.likelihood(records, temperature=temperature)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Inside, forward and backward passes need not come to the mean yet: another follows outside."""
        yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, this process has all weights, and can use the model without gradients as often as it likes."""
        yield

    def state_dict(self) -> dict[str, torch.Tensor] | None:
        """The trained weights by name, if they have to be put together first; only for the main process. All take
        part."""
        return None

    def clip_gradients(self, max_norm: float) -> torch.Tensor:
        """Scale the gradients down to `max_norm` in all. Returns their norm before, float32[]."""
        return torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), max_norm)

    def not_finite(self) -> torch.Tensor:
        """Of how many trained tensors this process' part has something infinite or not a number, float32[]."""
        parts = [self._part(weight.detach()) for weight in self.policy.model.parameters() if weight.requires_grad]
        return torch.stack([~torch.isfinite(part).all() for part in parts]).float().sum()

    def _part(self, weight: torch.Tensor) -> torch.Tensor:
        """Of a weight, what this process has."""
        return weight
