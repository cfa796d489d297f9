"""A convolutional network that reads the map in an observation and chooses among admissible actions."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch

from hgpo_gym.policies.base import CannotRespondError, Request
from hgpo_gym.policies.scoring import ScoringPolicy, choice_ids, step_context_of

SIGNS = 128
"""Characters that are distinguished: those of ASCII. 0 is the padding outside the map."""
ACTIONS = 4096
"""Rows for actions; an action's hash chooses its row."""


class Seen(NamedTuple):
    """The network's inputs for a step.

    Attributes:
        cells: int64[H, W], the map.
        actions: int64[A], the rows of its actions.
    """

    cells: np.ndarray
    actions: np.ndarray


@lru_cache(maxsize=1 << 16)
def read_map(text: str) -> np.ndarray:
    """Return the largest map in a text as int64[H, W]: successive lines with the same number of cells. A cell is one
    character, with or without spaces between; the map has at least 2 x 2. Characters beyond ASCII count as the last of
    it.

    Raises:
        CannotRespondError: the text has no map.
    """
    rows = [_cells(line) for line in text.splitlines()]
    blocks = [list(same) for width, same in groupby(rows, key=len) if width > 1]
    largest = max(blocks, key=lambda block: len(block) * len(block[0]), default=[])
    if len(largest) < 2:
        raise CannotRespondError(
            f"model=cnn reads a map, lines of as many cells below one another, and there is none in {text!r}: set "
            "model=features or model=tiny."
        )
    return np.array([[min(ord(sign), SIGNS - 1) for sign in row] for row in largest], dtype=np.int64)


def _cells(line: str) -> list[str]:
    words = line.split()
    if len(words) == 1:
        return list(words[0])
    return words if all(len(word) == 1 for word in words) else []


class MapNetwork(torch.nn.Module):
    """Embeddings of characters, a convolution, residual convolutions (He et al., 2016, arXiv:1512.03385), maximum and
    mean over the map, a hidden layer, and a score for each action.

    Args:
        channels: features a cell.
        layers: residual convolutions of 3 x 3 cells: how far a cell sees, apart from the pooled features of the map.
        seed: of the weights. The scores begin at 0.
    """

    def __init__(self, channels: int, layers: int, seed: int):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.signs = torch.nn.Embedding(SIGNS, channels, padding_idx=0)
            self.first = torch.nn.Conv2d(channels, channels, 3, padding=1)
            self.residual = torch.nn.ModuleList(
                torch.nn.Conv2d(channels, channels, 3, padding=1) for _ in range(layers)
            )
            self.hidden = torch.nn.Linear(2 * channels, channels)
        self.actions = torch.nn.Parameter(torch.zeros(ACTIONS, channels))
        self.biases = torch.nn.Parameter(torch.zeros(ACTIONS))

    def forward(self, cells: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return the scores float32[N, A] of actions int64[N, A] on maps int64[N, H, W], 0 beyond their edges."""
        inside = (cells > 0)[:, None]
        # Masked after each convolution: its bias would give cells outside the map a value.
        states = torch.relu(self.first(self.signs(cells).permute(0, 3, 1, 2))) * inside
        for convolution in self.residual:
            states = states + torch.relu(convolution(states)) * inside
        # No state is below 0, so that the zeros outside the map cannot be the maximum.
        mean = states.sum((2, 3)) / inside.sum((2, 3))
        hidden = torch.relu(self.hidden(torch.cat([states.amax((2, 3)), mean], dim=1)))
        return torch.einsum("nah,nh->na", self.actions[actions], hidden) + self.biases[actions]

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor]) -> "MapNetwork":
        """Return the network with this `state_dict`."""
        layers = sum(name.startswith("residual.") and name.endswith(".weight") for name in tensors)
        network = cls(tensors["signs.weight"].shape[1], layers, 0)
        network.load_state_dict(tensors)
        return network


class CnnPolicy(ScoringPolicy):
    """A `ScoringPolicy` that reads the present observation alone."""

    kind = "cnn"
    network = MapNetwork

    def featurize(self, requests: Sequence[Request]) -> list[Seen]:
        return [
            Seen(read_map(step_context_of(request, self.kind).observation), choice_ids(request.choices) % ACTIONS)
            for request in requests
        ]

    def logits(self, features: Sequence[Seen]) -> torch.Tensor:
        cells = _padded([seen.cells for seen in features])
        actions = _padded([seen.actions for seen in features])
        counts = torch.tensor([len(seen.actions) for seen in features])
        valid = torch.arange(actions.shape[1]) < counts[:, None]
        return self.model(cells, actions).masked_fill(~valid, float("-inf"))


def _padded(arrays: Sequence[np.ndarray]) -> torch.Tensor:
    """Return int64[N, ...]: arrays of different sizes, padded with 0."""
    sizes = np.max([array.shape for array in arrays], axis=0)
    padded = np.zeros((len(arrays), *sizes), dtype=np.int64)
    for row, array in zip(padded, arrays, strict=True):
        row[tuple(slice(size) for size in array.shape)] = array
    return torch.from_numpy(padded)
