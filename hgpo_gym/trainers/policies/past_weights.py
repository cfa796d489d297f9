"""Weights of earlier iterations, by which a policy can act again."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hgpo_gym.trainers.policies.base import TrainablePolicy


class PastWeights:
    """The trained weights of a policy as they were before each of its last updates.

    Args:
        policy: whose weights.
        updates: how many are kept; 0 keeps none.
    """

    def __init__(self, policy: TrainablePolicy, updates: int):
        self._policy = policy
        self._kept: deque[list[torch.Tensor]] = deque(maxlen=updates)

    def keep(self) -> None:
        """To be called before each update."""
        if self._kept.maxlen:
            self._kept.append(self._copies())

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Inside, the policy has the oldest weights that are kept, its own if there are none."""
        if not self._kept:
            yield
            return
        own = self._copies()
        self._put(self._kept[0])
        try:
            yield
        finally:
            self._put(own)

    def state(self) -> list[list[torch.Tensor]]:
        """All that is kept, for `load`."""
        return list(self._kept)

    def load(self, state: list[list[torch.Tensor]]) -> None:
        """Go on from a state."""
        self._kept.extend(state)

    def _trained(self) -> list[torch.nn.Parameter]:
        return [weight for weight in self._policy.model.parameters() if weight.requires_grad]

    def _copies(self) -> list[torch.Tensor]:
        return [weight.detach().clone() for weight in self._trained()]

    def _put(self, weights: list[torch.Tensor]) -> None:
        for own, other in zip(self._trained(), weights, strict=True):
            own.data.copy_(other)
        self._policy.updated()
