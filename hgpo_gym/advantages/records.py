"""The arrays of a `StepBatch` from plain lists with one entry per step."""

from collections.abc import Hashable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from hgpo_gym.advantages.columns import checked
from hgpo_gym.advantages.kinds import as_numbers, as_texts, hashes
from hgpo_gym.memory.keys import KeyFunction, chain_final_keys, chain_keys, key_function


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
    """Return the fields of a `StepBatch`; see `StepBatch.from_records`."""
    if not isinstance(history_length, Integral) or isinstance(history_length, bool) or history_length < 0:
        raise ValueError(f"history_length={history_length!r}: choose 0 or more observations, a whole number.")
    function = key_function(key)
    if function.with_action and action is None:
        raise ValueError(f"key={key!r} compares actions: pass action=, one a step.")
    if function.with_notes:
        raise ValueError(f"key={key!r} compares notes, which records do not have: choose another key.")
    groups, trajectories = as_numbers("group", group), as_numbers("trajectory", trajectory)
    texts = {
        "observation": as_texts("observation", observation),
        "action": None if action is None else as_texts("action", action),
        "final_observation": (
            None if final_observation is None else as_texts("final_observation", final_observation, optional=True)
        ),
    }
    numbers = {
        name: None if values is None else checked(name, values)
        for name, values in {"step": step, "reward": reward, "penalty": penalty, "success": success, **extras}.items()
    }
    for name, values in ({"trajectory": trajectories} | texts | numbers).items():
        if values is not None and len(values) != len(groups):
            raise ValueError(f"from_records: {name} has {len(values)} entries, group has {len(groups)}.")
    steps = numbers["step"]
    # Keys are chained along an episode, whatever the order of the records.
    order = np.lexsort((steps, trajectories))
    actions = None if texts["action"] is None else hashes(texts["action"])
    linked = actions if function.with_action else None
    canonical = [function.text(text, ()) for text in texts["observation"]]
    observations = hashes(canonical)
    text_of_key = dict(zip(observations.view(np.int64).tolist(), canonical, strict=True))
    keys = np.empty((len(groups), history_length + 1), dtype=np.int64)
    keys[order] = chain_keys(
        observations[order], steps[order] == 0, history_length, None if linked is None else linked[order]
    )
    finals = None
    if texts["final_observation"] is not None:
        ends = [text if text is None else function.text(text, ()) for text in texts["final_observation"]]
        finals = _final_keys(keys, hashes(ends), trajectories[order], order, linked)
        text_of_key |= {int(key): text for key, text in zip(finals[:, 0], ends, strict=True) if text is not None}
    return {
        "group": groups,
        "trajectory": trajectories,
        "step": steps,
        "reward": numbers["reward"],
        "context_keys": keys,
        "penalty": np.zeros(len(groups)) if penalty is None else numbers["penalty"],
        "action": actions,
        "success": numbers["success"],
        "final_keys": finals,
        "extras": {name: numbers[name] for name in extras},
        "texts": text_of_key,
    }


def _final_keys(
    keys: np.ndarray,
    final_hashes: np.ndarray,
    trajectories: np.ndarray,
    order: np.ndarray,
    action_hashes: np.ndarray | None,
) -> np.ndarray:
    """Return the keys int64[N, K + 1] of each episode's final observation; `trajectories` are in `order`."""
    last = order[np.append(trajectories[1:] != trajectories[:-1], np.ones(min(1, len(order)), dtype=np.bool_))]
    actions = None if action_hashes is None else action_hashes[last]
    finals = chain_final_keys(keys[last], final_hashes[last], actions)
    rows = np.empty_like(keys)
    rows[order] = np.repeat(finals, np.unique(trajectories, return_counts=True)[1], axis=0)
    if (wrong := np.flatnonzero(rows[:, 0].view(np.uint64) != final_hashes)).size:
        raise ValueError(
            f"from_records: final_observation of row {wrong[0]} is not that of its episode's last step: what the "
            "episode ended in is repeated on each of its steps."
        )
    return rows
