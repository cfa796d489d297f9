"""Context keys: 64-bit integers, equal exactly when steps share their observation and the k observations before it.

Keys are chained. With h(x) a 64-bit hash of the text x and `link` a mixing of two 64-bit numbers,

    key[0](t) = h(o_t)          key[k](t) = link(key[k-1](t-1), h(o_t))          0 where fewer than k steps came before

A step costs one text hash, and one mix per level. No text is stored. Two different windows get the same key with
probability 2^-64.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hgpo_gym.source_code import is_defined_again
from hgpo_gym.suggest import unknown_name

_NO_HISTORY = np.uint64(0)
_64_BITS = 2**64 - 1


def hash_text(text: str) -> int:
    """Return a 64-bit hash of any string, including lone surrogates; the same on every machine, never 0."""
    # Python's own hash() is salted in each process; "surrogatepass" encodes half of a surrogate pair.
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


@dataclass(frozen=True)
class KeyFunction:
    """The definition of equal observations for context keys; `register_key_function` names one for runs.

    Attributes:
        canonical: (observation, admissible_actions) -> the text to compare.
        with_action: past observations are compared together with the action after them.
        with_notes: `canonical` also gets the notes that the agent reads, as third argument.
    """

    canonical: Callable[..., str]
    with_action: bool = False
    with_notes: bool = False

    def text(self, observation: str, admissible_actions: tuple[str, ...], notes: str = "") -> str:
        """Return the text to compare."""
        return self.canonical(observation, admissible_actions, *((notes,) if self.with_notes else ()))


def _observation(observation: str, _admissible: tuple[str, ...]) -> str:
    return observation


def _with_admissible(observation: str, admissible: tuple[str, ...]) -> str:
    return "\n".join((observation, *admissible))


def canonical_notes(notes: str) -> str:
    """Return notes in lower case with single spaces: what context keys compare."""
    return " ".join(notes.lower().split())


def _notes(_observation: str, _admissible: tuple[str, ...], notes: str) -> str:
    return canonical_notes(notes)


def _with_notes(observation: str, _admissible: tuple[str, ...], notes: str) -> str:
    return f"{observation}\n{canonical_notes(notes)}"


KEY_FUNCTIONS: dict[str, KeyFunction] = {  # of named functions, so that a memory can be pickled
    "observation": KeyFunction(_observation),
    "observation+admissible": KeyFunction(_with_admissible),
    "observation+action": KeyFunction(_observation, with_action=True),
    "notes": KeyFunction(_notes, with_notes=True),
    "observation+notes": KeyFunction(_with_notes, with_notes=True),
}
_BUILT_IN = frozenset(KEY_FUNCTIONS)


def register_key_function(name: str, function: KeyFunction) -> None:
    """Register a key function for runs as `memory.key=name`.

    A function that is defined again, as in a notebook cell, replaces the earlier one. Raises ValueError if the name
    belongs to another function.
    """
    before = KEY_FUNCTIONS.get(name, function)
    if name in _BUILT_IN or not is_defined_again(before.canonical, function.canonical):
        raise ValueError(f"The key function name {name!r} is taken: choose another.")
    KEY_FUNCTIONS[name] = function


def key_function(key: str | KeyFunction) -> KeyFunction:
    """Return the key function of this name; a `KeyFunction` is returned unchanged.

    Raises:
        ValueError: no such name.
    """
    if isinstance(key, KeyFunction):
        return key
    if key not in KEY_FUNCTIONS:
        raise ValueError(unknown_name("key function", key, KEY_FUNCTIONS))
    return KEY_FUNCTIONS[key]


class KeyChain:
    """The context keys of one episode, step by step.

    Attributes:
        keys: the keys of the present step, level 0 first, each 0 to 2^64 - 1.
    """

    def __init__(self, history_length: int):
        self.keys = [0] * (history_length + 1)

    def advance(self, observation_hash: int, action_hash: int | None = None) -> np.ndarray:
        """Go to the next observation and return its keys, int64[history_length + 1].

        `action_hash` is the hash of the action before it, for key functions with actions.
        """
        # In Python integers: for a handful of levels NumPy's calls would take eight times as long.
        before = self.keys[:-1]
        if action_hash is not None:
            before = [_link_integers(key, action_hash) for key in before]
        # Level k continues level k - 1 of the previous step; the deepest key drops out.
        self.keys = [observation_hash, *(_link_integers(key, observation_hash) for key in before)]
        return np.array(self.keys, dtype=np.uint64).view(np.int64)


def chain_keys(
    observation_hashes: np.ndarray, starts: np.ndarray, history_length: int, action_hashes: np.ndarray | None = None
) -> np.ndarray:
    """Return the context keys of many episodes at once.

    Args:
        observation_hashes: uint64[N], episode after episode, steps in order.
        starts: bool[N], the first steps of episodes.
        history_length: K, the number of earlier observations at the deepest level.
        action_hashes: uint64[N], of the action at each step, for key functions with actions.

    Returns int64[N, K + 1].
    """
    keys = np.zeros((len(observation_hashes), history_length + 1), dtype=np.uint64)
    keys[:, 0] = observation_hashes
    for level in range(1, history_length + 1):
        # The window of k + 1 observations is the previous step's window of k, plus this observation.
        before = keys[:-1, level - 1]
        if action_hashes is not None:
            before = link(before, action_hashes[:-1])
        keys[1:, level] = np.where(starts[1:], _NO_HISTORY, link(before, observation_hashes[1:]))
    return keys.view(np.int64)


def chain_final_keys(
    last_keys: np.ndarray, observation_hashes: np.ndarray, action_hashes: np.ndarray | None = None
) -> np.ndarray:
    """Return the context keys int64[E, K + 1] of the final observations of episodes, all 0 where unknown.

    Args:
        last_keys: int64[E, K + 1], the keys of each episode's last step.
        observation_hashes: uint64[E], of the final observations; 0 where unknown.
        action_hashes: uint64[E], of the last actions, for key functions with actions.
    """
    before, now = last_keys[:, :-1].view(np.uint64), observation_hashes[:, None]
    if action_hashes is not None:
        before = link(before, action_hashes[:, None])
    return np.concatenate([now, np.where(now == 0, _NO_HISTORY, link(before, now))], axis=1).view(np.int64)


def link(before: np.ndarray, now: np.ndarray | np.uint64) -> np.ndarray:
    """Mix the key of a shorter window with the next hash; 0 (no history) stays 0. All numbers are uint64.

    Invertible in either argument, with the multipliers of the SplitMix64 generator (Steele et al., 2014).
    """
    # uint64 arrays wrap around at 2^64, which is the arithmetic that SplitMix64 needs.
    mixed = before * np.uint64(0x9E3779B97F4A7C15) + now
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    # 0 means "no history", so a mix that happens to be 0 becomes 1.
    return np.where(before == _NO_HISTORY, _NO_HISTORY, np.maximum(mixed, np.uint64(1)))


def _link_integers(before: int, now: int) -> int:
    """Return `link` of two Python integers."""
    if before == 0:
        return 0
    # Python's integers do not wrap around: the mask does it.
    mixed = (before * 0x9E3779B97F4A7C15 + now) & _64_BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return (mixed ^ (mixed >> 31)) or 1


def link_text(keys: np.ndarray, text: str) -> np.ndarray:
    """Return context keys int64 that also depend on a further text; 0 (no history) stays 0."""
    return link(keys.view(np.uint64), np.uint64(hash_text(text))).view(np.int64)
