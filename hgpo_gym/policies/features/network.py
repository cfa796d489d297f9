"""The network from hashed features to scores: a weight for each feature, and a small network beside it."""

import torch


class Network(torch.nn.Module):
    """score = sum of weights of the wide features + v . tanh(sum of vectors of the deep features) + u . leaning

    The first two terms start at 0, so that the first policy depends on `leaning` alone.

    Args:
        wide: the number of weights.
        deep: the number of vectors.
        hidden_size: the length of the vectors; 0 omits the small network.
        leaning: the first value of u, see `Features`.
        seed: of the vectors.
        description_words: an option of the features, saved with the weights, see `Extractor`.
    """

    def __init__(
        self,
        wide: int,
        deep: int,
        hidden_size: int,
        leaning: tuple[float, float],
        seed: int,
        description_words: int = 0,
    ):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(wide))
        self.leaning = torch.nn.Parameter(torch.tensor(leaning))
        self.wide, self.deep, self.hidden_size = wide, deep, hidden_size
        self.description_words = description_words
        if description_words:
            self.register_buffer("description_limit", torch.tensor(description_words))
        if hidden_size:
            generator = torch.Generator().manual_seed(seed)
            self.vectors = torch.nn.Parameter(0.1 * torch.randn(deep, hidden_size, generator=generator))
            self.out = torch.nn.Parameter(torch.zeros(hidden_size))

    def forward(self, wide: torch.Tensor, deep: torch.Tensor, leaning: torch.Tensor) -> torch.Tensor:
        """Return scores float32[R] of feature ids int32[R, W] and [R, D], 0 for none, and leanings float32[R, 2]."""
        # index_select is several times as fast as indexing, and embedding_bag without padding_idx as with one (2.13).
        weights = self.weights.index_select(0, wide.view(-1)).view(wide.shape)
        scores = (weights * (wide > 0)).sum(1) + leaning @ self.leaning
        if self.hidden_size:
            present = deep > 0
            # embedding_bag takes the start of each bag in one flat list.
            ends = present.sum(1, dtype=torch.int32).cumsum(0, dtype=torch.int32)
            starts = torch.nn.functional.pad(ends[:-1], (1, 0))
            hidden = torch.nn.functional.embedding_bag(deep[present], self.vectors, starts, mode="sum")
            scores = scores + torch.tanh(hidden) @ self.out
        return scores

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor]) -> "Network":
        """Return the network with this `state_dict`."""
        deep, hidden_size = tensors["vectors"].shape if "vectors" in tensors else (1, 0)
        description_words = int(tensors.get("description_limit", 0))
        network = cls(len(tensors["weights"]), deep, hidden_size, (0.0, 0.0), 0, description_words)
        network.load_state_dict(tensors)
        return network
