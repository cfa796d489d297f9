"""Similarity of observations: texts of a task group that are close to one another count as one for context keys."""

from collections import Counter
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
            if _reaches(threshold, matcher, units[other], units[leader]):
                leader_of[other] = leader
        rest = rest[leader_of[rest] != leader]
    return leader_of


def _reaches(threshold: float, matcher: "SequenceMatcher[str]", text: Sequence[str], leader: Sequence[str]) -> bool:
    """Return `matcher.ratio() >= threshold`, as soon as it is certain; `leader` is the matcher's second text."""
    matcher.set_seq1(text)
    total = len(text) + len(leader)
    if not total:
        return True
    # difflib takes the longest common block, then those on either side: `left` bounds what they can add.
    matched, left, regions = 0, min(len(text), len(leader)), [(0, len(text), 0, len(leader))]
    while 2 * matched / total < threshold <= 2 * (matched + left) / total and regions:
        low, high, leader_low, leader_high = regions.pop()
        left -= min(high - low, leader_high - leader_low)
        start, leader_start, size = matcher.find_longest_match(low, high, leader_low, leader_high)
        matched += size
        sides = [
            (low, start, leader_low, leader_start),
            (start + size, high, leader_start + size, leader_high),
        ]
        for side in sides if size else ():
            if (most := min(side[1] - side[0], side[3] - side[2])) > 0:
                regions.append(side)
                left += most
    return 2 * matched / total >= threshold


def _highest_ratios(units: Sequence[Sequence[str]]) -> Callable[[int], np.ndarray]:
    """Return a function from a text to an upper bound float64[N] of its ratio to each: by shared units in any order."""
    lengths, counts = np.array([len(text) for text in units]), [Counter(text) for text in units]
    index_of: dict[str, int] = {}
    # An entry for each unit of each text, text after text; then the same entries unit after unit.
    unit = np.array([index_of.setdefault(unit, len(index_of)) for count in counts for unit in count], dtype=np.int64)
    times = np.array([times for count in counts for times in count.values()], dtype=np.int64)
    first_of_text = np.cumsum([0, *map(len, counts)])
    order = np.argsort(unit, kind="stable")
    holders, held = np.repeat(np.arange(len(units)), np.diff(first_of_text))[order], times[order]
    first_of_unit = np.searchsorted(unit[order], np.arange(len(index_of) + 1))

    def bound(text: int) -> np.ndarray:
        of_text = slice(first_of_text[text], first_of_text[text + 1])
        starts = first_of_unit[unit[of_text]]
        sizes = first_of_unit[unit[of_text] + 1] - starts
        entries = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        common = np.minimum(held[entries], np.repeat(times[of_text], sizes))
        shared, total = np.bincount(holders[entries], common, minlength=len(units)), lengths + lengths[text]
        return np.divide(2 * shared, total, out=np.ones(len(units)), where=total > 0)

    return bound
