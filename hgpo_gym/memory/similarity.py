"""Similarity of observations: texts of a task group that are close to one another count as one for context keys."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

import numpy as np

from hgpo_gym.suggest import unknown_name

UNITS: dict[str, Callable[[str], Sequence[str]]] = {"words": str.split, "characters": str, "difflib": str}
"""The parts of a text that each kind of similarity compares. `difflib` compares characters too, and ignores
the frequent ones of long texts, as the published code of GiGPO does."""


def check_similarity(threshold: float, kind: str = "words") -> None:
    """Raise ValueError for a threshold outside [0, 1] or an unknown kind."""
    if not 0 <= threshold <= 1:
        raise ValueError(f"similarity={threshold}: choose a share from 0 to 1, such as 0.9.")
    if kind not in UNITS:
        raise ValueError(unknown_name("kind of similarity", kind, UNITS))


def leaders(texts: Sequence[str], threshold: float, kind: str = "words") -> np.ndarray:
    """Return the index of each text's leader, int64[N].

    In order, each text joins the first leader with similarity(text, leader) >= threshold, or becomes a leader.
    Similarity is 2 M / (|a| + |b|), with M the units in difflib's matching blocks; 1 for two empty texts.

    Args:
        texts: distinct, in the order of precedence.
        threshold: 0 to 1.
        kind: the units that are compared, see `UNITS`.

    Raises:
        ValueError: a threshold outside [0, 1], or an unknown kind.
    """
    check_similarity(threshold, kind)
    units = [UNITS[kind](text) for text in texts]
    leader_of, rest = np.arange(len(texts)), np.arange(len(texts))
    highest_possible = _highest_ratios(units)
    # The texts that no leader has taken keep their order, so that the first of them is the next leader.
    while len(rest):
        leader, rest = rest[0], rest[1:]
        matcher = SequenceMatcher(None, autojunk=kind == "difflib")
        matcher.set_seq2(units[leader])  # difflib indexes the second text; the first may change at little cost
        for other in rest[highest_possible(leader)[rest] >= threshold]:
            matcher.set_seq1(units[other])
            if matcher.ratio() >= threshold:
                leader_of[other] = leader
        rest = rest[leader_of[rest] != leader]
    return leader_of


def _highest_ratios(units: Sequence[Sequence[str]]) -> Callable[[int], np.ndarray]:
    """Return a function from a text to an upper bound float64[N] of its ratio to each: by shared units in any order."""
    lengths = np.array([len(text) for text in units])
    counts = [Counter(text) for text in units]
    holders: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, count in enumerate(counts):
        for unit, times in count.items():
            holders[unit][0].append(index)
            holders[unit][1].append(times)
    arrays = {unit: (np.array(indices), np.array(times)) for unit, (indices, times) in holders.items()}

    def bound(text: int) -> np.ndarray:
        shared, total = np.zeros(len(units)), lengths + lengths[text]
        for unit, times in counts[text].items():
            indices, times_there = arrays[unit]
            shared[indices] += np.minimum(times_there, times)
        return np.divide(2 * shared, total, out=np.ones(len(units)), where=total > 0)

    return bound
