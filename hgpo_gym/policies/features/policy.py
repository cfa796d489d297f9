"""The features policy: general features of each admissible action, and a softmax over their scores."""

from collections.abc import Sequence

import numpy as np
import torch

from hgpo_gym.policies.base import Request
from hgpo_gym.policies.features.features import Extractor, Features
from hgpo_gym.policies.features.network import Network
from hgpo_gym.policies.scoring import ScoringPolicy


class FeaturesPolicy(ScoringPolicy):
    """See `ScoringPolicy`.

    Args:
        model: gives the scores.
    """

    kind = "features"
    network = Network

    def __init__(self, model: Network):
        super().__init__(model)
        self._extract = Extractor(model.wide, model.deep)

    def look(self, requests: Sequence[Request]) -> list[Features]:
        return self._extract(requests)

    def logits(self, features: Sequence[Features]) -> torch.Tensor:
        scores = self.model(*(_stacked(parts) for parts in list(zip(*features, strict=True))[:3]))
        counts = np.array([len(own.row) for own in features])
        firsts = np.cumsum([0, *(len(own.wide) for own in features[:-1])])
        own = np.arange(counts.max()) < counts[:, None]
        rows = np.concatenate([one.row + first for one, first in zip(features, firsts, strict=True)])
        logits = torch.full(own.shape, float("-inf"))
        return logits.masked_scatter(torch.from_numpy(own), scores[torch.from_numpy(rows)])


def _stacked(parts: Sequence[np.ndarray]) -> torch.Tensor:
    """Arrays of different width below one another, filled up with 0."""
    stacked = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)), dtype=parts[0].dtype)
    first = 0
    for part in parts:
        stacked[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return torch.from_numpy(stacked)
