"""The arrays of a `StepBatch` from plain lists, one entry a step."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from hgpo_gym.memory.keys import KeyFunction, chain_keys, hash_text, key_function, link


def arrays_of_records(
    *,
    group: Sequence[Hashable],
    trajectory: Sequence[Hashable],
    step: Sequence[int],
    observation: Sequence[str],
    reward: Sequence[float],
    history_length: int,
    action: Sequence[str] | None,
    penalty: Sequence[float] | None,
    success: Sequence[bool] | None,
    final_observation: Sequence[str | None] | None,
    key: str | KeyFunction,
    extras: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    """The fields of `StepBatch`; see `StepBatch.from_records`."""
    lists: dict[str, Sequence[Any] | None] = {
        "trajectory": trajectory,
        "step": step,
        "observation": observation,
        "reward": reward,
        "action": action,
        "penalty": penalty,
        "success": success,
        "final_observation": final_observation,
        **extras,
    }
    for name, values in lists.items():
        if values is not None and len(values) != len(group):
            raise ValueError(f"from_records: {name} has {len(values)} entries, group has {len(group)}.")
    if history_length < 0:
        raise ValueError(f"history_length={history_length}: choose 0 or more observations.")
    function = key_function(key)
    if function.with_action and action is None:
        raise ValueError(f"key={key!r} compares actions: pass action=, one a step.")
    _check_texts("observation", observation)
    _check_texts("action", () if action is None else action)
    trajectories, steps = _number(trajectory), _whole_numbers("step", step)
    order = np.lexsort((steps, trajectories))
    actions = None if action is None else _hash_all(action)
    linked = actions if function.with_action else None
    hashes = _hash_all([function.canonical(text, ()) for text in observation])
    keys = np.empty((len(group), history_length + 1), dtype=np.int64)
    keys[order] = chain_keys(
        hashes[order], steps[order] == 0, history_length, None if linked is None else linked[order]
    )
    finals = None
    if final_observation is not None:
        canonical = [text if text is None else function.canonical(text, ()) for text in final_observation]
        finals = _final_keys(keys, _hash_all(canonical), trajectories[order], order, linked)
    return {
        "group": _number(group),
        "trajectory": trajectories,
        "step": steps,
        "reward": _finite("reward", reward),
        "context_keys": keys,
        "penalty": np.zeros(len(group)) if penalty is None else _finite("penalty", penalty),
        "action": None if actions is None else actions.view(np.int64),
        "success": None if success is None else np.asarray(success, dtype=np.bool_),
        "final_keys": finals,
        "extras": {name: _as_array(name, values) for name, values in extras.items()},
    }


def _final_keys(
    keys: np.ndarray,
    final_hashes: np.ndarray,
    trajectories: np.ndarray,
    order: np.ndarray,
    action_hashes: np.ndarray | None,
) -> np.ndarray:
    """int64[N, K + 1]: the chain of each episode's last keys one observation on; `trajectories` are in `order`."""
    last = order[np.append(trajectories[1:] != trajectories[:-1], np.ones(min(1, len(order)), dtype=np.bool_))]
    before = keys[last, :-1].view(np.uint64)
    if action_hashes is not None:
        before = link(before, action_hashes[last, None])
    now = final_hashes[last, None]
    finals = np.concatenate([now, np.where(now == 0, np.uint64(0), link(before, now))], axis=1).view(np.int64)
    rows = np.empty_like(keys)
    rows[order] = np.repeat(finals, np.unique(trajectories, return_counts=True)[1], axis=0)
    if (wrong := np.flatnonzero(rows[:, 0].view(np.uint64) != final_hashes)).size:
        raise ValueError(
            f"from_records: final_observation of entry {wrong[0]} is not that of its episode's last step: what the "
            "episode ended in is repeated on each of its steps."
        )
    return rows


def _check_texts(name: str, values: Sequence[Any]) -> None:
    """Raise ValueError where one is no text."""
    for entry, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"from_records: {name} of entry {entry} is {value!r}: give a text.")


def _whole_numbers(name: str, values: Sequence[int]) -> np.ndarray:
    """int64[N]. Raises ValueError where one is something else."""
    given = np.asarray(values)
    if len(given) and (given.dtype.kind not in "iuf" or (given != np.floor(given)).any()):
        raise ValueError(f"from_records: {name} has to be whole numbers; it begins with {given[:3].tolist()}.")
    return given.astype(np.int64)


def _finite(name: str, values: Sequence[float]) -> np.ndarray:
    """float64[N]. Raises ValueError where one is infinite or not a number."""
    numbers = np.asarray(values, dtype=np.float64)
    if wrong := np.flatnonzero(~np.isfinite(numbers)).tolist():
        raise ValueError(f"from_records: {name} of entry {wrong[0]} is {numbers[wrong[0]]}, not a finite number.")
    return numbers


def _number(names: Sequence[Hashable]) -> np.ndarray:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _hash_all(texts: Sequence[str | None]) -> np.ndarray:
    hashes = {text: 0 if text is None else hash_text(text) for text in set(texts)}
    return np.array([hashes[text] for text in texts], dtype=np.uint64)


def _as_array(name: str, values: Sequence[Any]) -> np.ndarray:
    """Numbers and truth values as they are, None among numbers as NaN; text as its hash, None among text as 0. Raises
    ValueError for None among truth values, which would be true as a number."""
    if isinstance(values, np.ndarray):
        return values
    if any(isinstance(value, str) for value in values):
        return _hash_all(values).view(np.int64)
    missing = [index for index, value in enumerate(values) if value is None]
    if missing and any(isinstance(value, bool | np.bool_) for value in values):
        raise ValueError(f"from_records: {name} of entry {missing[0]} is None among truth values: say true or false.")
    return np.array(values, dtype=np.float64 if missing else None)
