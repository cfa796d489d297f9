"""Value networks: a small network on the policy's hidden state, or a table of contexts."""

from typing import Any, Protocol

import numpy as np
import torch

from hgpo_gym.policies.tabular import LogitTable
from hgpo_gym.trainers.critic.settings import CriticSettings


class ValueNetwork(Protocol):
    """A torch module that predicts values. Both kinds start with 0 everywhere.

    Attributes:
        learning_rate: that suits it.
    """

    learning_rate: float

    def values(self, states: np.ndarray) -> torch.Tensor:
        """Return the values float32[N] of `StateReader.states`; differentiable."""

    def saved(self) -> dict[str, torch.Tensor]:
        """Return the whole state."""

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        """Restore a state that `saved` returned."""


class ValueHead(torch.nn.Module):
    """A perceptron with one hidden layer on standardised states. A `hidden_size` of 0 makes it a linear layer.

    The states carry no gradient, so the critic's training does not change the policy.

    Args:
        state_size: length of a state.
        hidden_size: width of the hidden layer.
        seed: decides the weights of the hidden layer; the output weights are 0.
    """

    learning_rate = 3e-3

    def __init__(self, state_size: int, hidden_size: int, seed: tuple[int, ...]):
        super().__init__()
        self._standardise = torch.nn.LayerNorm(state_size, elementwise_affine=False)
        # Leave torch's global generator as it is: other random numbers depend on it.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
            hidden = [torch.nn.Linear(state_size, hidden_size), torch.nn.Tanh()] if hidden_size else []
            output = torch.nn.Linear(hidden_size or state_size, 1)
        torch.nn.init.zeros_(output.weight)
        torch.nn.init.zeros_(output.bias)
        self._layers = torch.nn.Sequential(*hidden, output)

    def values(self, states: np.ndarray) -> torch.Tensor:
        device = next(self.parameters()).device
        return self._layers(self._standardise(torch.from_numpy(states).to(device)))[:, 0]

    def saved(self) -> dict[str, torch.Tensor]:
        return {name: weight.detach().cpu().clone() for name, weight in self.state_dict().items()}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        self.load_state_dict(saved)


class ValueTable(torch.nn.Module):
    """A value for each context, 0 for a context without training data.

    Args:
        capacity: the most contexts.
    """

    learning_rate = 0.1

    def __init__(self, capacity: int):
        super().__init__()
        self._table = LogitTable(capacity)

    def values(self, states: np.ndarray) -> torch.Tensor:
        """See `ValueNetwork`. The states are ids, int64[N]. In training mode a new context gets a new entry."""
        return self._table(states.view(np.uint64))

    def saved(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self._table.tensors().items()}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        self._table.load_tensors(**saved)


def make_network(policy: Any, settings: CriticSettings, seed: tuple[int, ...]) -> Any:
    """Return the network that fits the states of a `StateReader`, on the device of its model."""
    if policy.state_size is None:
        return ValueTable(policy.model.capacity)
    return ValueHead(policy.state_size, settings.hidden_size, seed).to(policy.model.device)
