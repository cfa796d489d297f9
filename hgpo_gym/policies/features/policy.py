"""The features policy: a softmax over the scores of each admissible action's features."""

from collections.abc import Sequence

import numpy as np
import torch

from hgpo_gym.policies.base import Request
from hgpo_gym.policies.features.features import Extractor, Features
from hgpo_gym.policies.features.network import Network
from hgpo_gym.policies.scoring import ScoringPolicy


class FeaturesPolicy(ScoringPolicy):
    """A `ScoringPolicy` by hashed features.

    Args:
        model: computes the scores.
    """

    kind = "features"
    network = Network

    def __init__(self, model: Network):
        super().__init__(model)
        self._extract = Extractor(model.wide, model.deep, model.description_words)

    def featurize(self, requests: Sequence[Request]) -> list[Features]:
        return self._extract(requests)

    def logits(self, features: Sequence[Features]) -> torch.Tensor:
        scores = self.model(*(_stacked(parts) for parts in list(zip(*features, strict=True))[:3]))
        counts = np.array([len(item.row) for item in features])
        # The rows of all steps are stacked: a step's row numbers move by the rows before it.
        firsts = np.cumsum([0, *(len(item.wide) for item in features[:-1])])
        valid = np.arange(counts.max()) < counts[:, None]
        rows = np.concatenate([item.row + first for item, first in zip(features, firsts, strict=True)])
        logits = torch.full(valid.shape, float("-inf"))
        return logits.masked_scatter(torch.from_numpy(valid), scores[torch.from_numpy(rows)])


def _stacked(parts: Sequence[np.ndarray]) -> torch.Tensor:
    """Return arrays of different width stacked by rows, padded with 0."""
    stacked = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)), dtype=parts[0].dtype)
    first = 0
    for part in parts:
        stacked[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return torch.from_numpy(stacked)
