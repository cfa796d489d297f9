"""Similar observations as one: a batch whose context keys are equal for texts that are close to one another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.memory.keys import KeyFunction, chain_final_keys, chain_keys, key_function
from hgpo_gym.memory.similarity import leaders
from hgpo_gym.suggest import unknown_name

ORDERS = ("visits", "rows")


def cluster_observations(
    batch: StepBatch,
    texts: Mapping[int, str],
    threshold: float,
    kind: str = "words",
    *,
    order: str = "visits",
    key: str | KeyFunction = "observation",
) -> StepBatch:
    """Return the batch with one context key for similar observations of a task group.

    In each group, every text joins the first leader with similarity(text, leader) >= threshold, or becomes a leader.
    Texts come by the number of their visits, most first, then in alphabetical order. Texts in which episodes only end
    come last. So the result does not depend on the order of rows. Keys of level 0 become those of their leaders, and
    deeper levels are chained anew.

    Args:
        batch: the steps.
        texts: for each key of level 0 in `context_keys` and `final_keys`, the text that it is the hash of;
            `StepBatch.texts` has them.
        threshold: 0 to 1. 1 merges equal texts, 0 all texts of a group.
        kind: what is compared: `words`, `characters`, or `difflib`, see `hgpo_gym.memory.similarity`.
        order: `visits`, as above; `rows` takes texts by their first row. With `kind="difflib"` the latter agrees with
            the published code of GiGPO (verl-agent, `gigpo/core_gigpo.py`).
        key: the key function of the batch.

    Raises:
        ValueError: a wrong option, a key without a text, or context keys that are not those of a single agent by this
            key function.
    """
    if order not in ORDERS:
        raise ValueError(unknown_name("order of texts", order, ORDERS))
    finals = np.zeros_like(batch.context_keys) if batch.final_keys is None else batch.final_keys
    seen, ends = batch.context_keys[:, 0], finals[:, 0]
    text_of_key = texts_of_keys(np.unique(np.append(seen, ends[ends != 0])), texts)
    new_seen, new_ends = seen.copy(), ends.copy()
    for group in range(batch.group_labels.max(initial=-1) + 1):
        rows = np.flatnonzero(batch.group_labels == group)
        ordered = _in_order(batch, rows, ends, text_of_key, order)
        indices = leaders([text_of_key[text] for text in ordered], threshold, kind)
        leader_of = {0: 0} | {text: ordered[index] for text, index in zip(ordered, indices, strict=True)}
        new_seen[rows] = [leader_of[text] for text in seen[rows].tolist()]
        new_ends[rows] = [leader_of[text] for text in ends[rows].tolist()]
    if np.array_equal(new_seen, seen) and np.array_equal(new_ends, ends):
        return batch
    _check_chain(batch, finals, key)
    keys, final_keys = _chained(batch, new_seen, new_ends, key)
    return replace(batch, context_keys=keys, final_keys=None if batch.final_keys is None else final_keys)


def texts_of_keys(keys: np.ndarray, texts: Mapping[int, str]) -> dict[int, str]:
    """Return the text of each key int64. The mapping may have keys as unsigned numbers, as `hash_text` returns them."""
    found = {key: texts.get(key, texts.get(key % 2**64)) for key in keys.tolist()}
    if missing := [key for key, text in found.items() if text is None]:
        raise ValueError(
            f"texts lacks the key {missing[0]} and {len(missing) - 1} others of {len(found)}: give the text of each "
            "key of level 0. A team's keys also depend on messages; they are hashes of no text."
        )
    return {key: text for key, text in found.items() if text is not None}


def _in_order(
    batch: StepBatch, rows: np.ndarray, ends: np.ndarray, texts: Mapping[int, str], order: str
) -> Sequence[int]:
    """Return the distinct keys of level 0 of a group, those that only end episodes last, in the order of precedence."""
    final = [key for key in dict.fromkeys(ends[rows].tolist()) if key != 0]
    if order == "rows":
        return list(dict.fromkeys(batch.context_keys[rows, 0].tolist() + final))
    # Copies of a step that episodes share are one visit.
    once = np.intersect1d(rows, batch.distinct_rows, assume_unique=True)
    visited, visits = np.unique(batch.context_keys[once, 0], return_counts=True)
    count = dict(zip(visited.tolist(), visits.tolist(), strict=True))
    return sorted(count.keys() | set(final), key=lambda text: (-count.get(text, 0), texts[text]))


def _chained(
    batch: StepBatch, seen: np.ndarray, ends: np.ndarray, key: str | KeyFunction
) -> tuple[np.ndarray, np.ndarray]:
    """Return context keys and final keys int64[N, K + 1] by their level 0, int64[N]."""
    rows, starts = batch.in_order, batch.step[batch.in_order] == 0
    actions = None
    if key_function(key).with_action:
        actions = batch.column("action", "observation+action", "Key function")[rows].view(np.uint64)
    in_order = chain_keys(seen[rows].view(np.uint64), starts, batch.history_length, actions)
    last = np.append(starts[1:], True)
    last_actions = None if actions is None else actions[last]
    final = chain_final_keys(in_order[last], ends[rows][last].view(np.uint64), last_actions)
    keys, final_keys = np.empty_like(in_order), np.empty_like(in_order)
    keys[rows] = in_order
    final_keys[rows] = final[np.cumsum(starts) - 1]
    return keys, final_keys


def _check_chain(batch: StepBatch, finals: np.ndarray, key: str | KeyFunction) -> None:
    """Raise ValueError unless the keys of the batch are chained as its observations are."""
    keys, final_keys = _chained(batch, batch.context_keys[:, 0], finals[:, 0], key)
    if not np.array_equal(keys, batch.context_keys) or not np.array_equal(final_keys, finals):
        raise ValueError(
            f"The deeper context keys of this batch are not chained by key={key!r}: name the key function that the "
            "batch was recorded with. Keys of a team cannot be merged."
        )
