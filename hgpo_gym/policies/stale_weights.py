"""Weights of earlier iterations, by which a policy can act again."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hgpo_gym.policies.base import TrainablePolicy


class StaleWeights:
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
    def rollout_weights(self) -> Iterator[None]:
        """Inside, the policy has the oldest weights that are kept, its own if there are none."""
        if not self._kept:
            yield
            return
        own = self._copies()
        put_weights(self._policy, self._kept[0])
        try:
            yield
        finally:
            put_weights(self._policy, own)

    @property
    def oldest(self) -> list[torch.Tensor]:
        """The weights that `rollout_weights` puts in place."""
        return self._kept[0] if self._kept else self._copies()

    def state(self) -> list[list[torch.Tensor]]:
        """All that is kept, for `load`."""
        return list(self._kept)

    def load(self, state: list[list[torch.Tensor]]) -> None:
        """Go on from a state."""
        self._kept.extend(state)

    def _copies(self) -> list[torch.Tensor]:
        return [weight.detach().clone() for weight in _trained(self._policy)]


def put_weights(policy: TrainablePolicy, weights: list[torch.Tensor]) -> None:
    """Let a policy act by these trained weights."""
    for own, other in zip(_trained(policy), weights, strict=True):
        own.data.copy_(other)
    policy.updated()


def _trained(policy: TrainablePolicy) -> list[torch.nn.Parameter]:
    return [weight for weight in policy.model.parameters() if weight.requires_grad]
