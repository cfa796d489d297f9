"""Token tries: which tokens may come next when the answer must be one of a few."""

from collections.abc import Iterable, Sequence

import numpy as np


class TokenTrie:
    """The token sequences that are allowed, each followed by the end-of-text token.

    A node is identified by a number; 0 is the root.
    """

    def __init__(self, sequences: Iterable[Sequence[int]], end_of_text: int):
        self._children: list[dict[int, int]] = [{}]
        for sequence in sequences:
            node = 0
            for token in (*sequence, end_of_text):
                node = self._children[node].setdefault(token, len(self._children))
                if node == len(self._children):
                    self._children.append({})
        self._allowed: dict[int, np.ndarray] = {}  # of the nodes that were asked for

    def allowed(self, node: int) -> np.ndarray:
        """int64[A]: the tokens that may follow; empty at the end of a sequence."""
        if node not in self._allowed:
            self._allowed[node] = np.array(sorted(self._children[node]), dtype=np.int64)
        return self._allowed[node]

    def child(self, node: int, token: int) -> int:
        """The node that an allowed token leads to."""
        return self._children[node][token]

    def forced(self, node: int) -> list[int]:
        """The rest of the sequence if it is the only one left below this node, else []."""
        rest = []
        while len(self._children[node]) == 1:
            ((token, node),) = self._children[node].items()
            rest.append(token)
        return [] if self._children[node] else rest
