"""The weights that a run trains, as the update uses them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from hgpo_gym.policies.base import Likelihood, LikelihoodModel, TokenRecord


class Weights:
    """The weights of a model, all of them in this one process.

    Args:
        policy: reads the weights; other policies may share its model.
    """

    def __init__(self, policy: LikelihoodModel):
        self.policy = policy

    def read_by(self, policy: LikelihoodModel) -> "Weights":
        """Return the same weights for another policy that shares the model."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """Return the policy's likelihood for training. Backward passes leave the mean over processes in `grad`, so
        every process must make the same number of passes."""
        return self.policy.likelihood(records, temperature=temperature)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Skip the gradient synchronisation inside the block. A pass outside of the block must follow."""
        yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather all weights in this process inside the block. It can then use the model without gradients any
        number of times."""
        yield

    def state_dict(self) -> dict[str, torch.Tensor] | None:
        """Return the trained weights by name if they must be gathered first, for the main process only. All
        processes take part."""
        return None

    def clip_gradients(self, max_norm: float) -> torch.Tensor:
        """Clip the total gradient norm to `max_norm`. Returns the norm before clipping, float32[]."""
        return self._total(torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), max_norm))

    def gradient_norms(self) -> dict[str, float]:
        """Return the norm of each weight's gradient, by the weight's name. All processes take part."""
        return {
            name: self._total(torch.linalg.vector_norm(weight.grad)).item()
            for name, weight in self.policy.model.named_parameters()
            if weight.grad is not None
        }

    def not_finite(self) -> torch.Tensor:
        """Return the number of trained tensors with an infinite or NaN entry in this process's part, float32[]."""
        parts = [self._part(weight.detach()) for weight in self.policy.model.parameters() if weight.requires_grad]
        return torch.stack([~torch.isfinite(part).all() for part in parts]).float().sum()

    def _part(self, weight: torch.Tensor) -> torch.Tensor:
        """Return this process's part of a weight."""
        return weight

    def _total(self, norm: torch.Tensor) -> torch.Tensor:
        """Return a norm over all processes' parts."""
        return norm
