"""StepBatch: the arrays of credit assignment, with one row per step and no padding."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hgpo_gym.advantages.columns import checked, missing_column
from hgpo_gym.advantages.kinds import ColumnError
from hgpo_gym.advantages.records import arrays_of_records
from hgpo_gym.memory.keys import KeyFunction

SIZE_BOUNDS = (1, 2, 4, 8)
"""Upper bounds of the bins of group sizes: 1, 2, 3 to 4, 5 to 8, and more."""

_REQUIRED = ("group", "trajectory", "step", "reward", "context_keys", "penalty")
_OPTIONAL = ("action", "success", "final_keys", "trained")
_OF_THE_EPISODE = ("success", "final_keys")


@dataclass(frozen=True)
class StepBatch:
    """Grouped rollouts with one row per step, in any order, without padding rows.

    A column may be any sequence that holds its values exactly (other number types, lists, Series); it is stored as an
    array of the type below. Other values raise an error that names column and row.

    Attributes:
        group: int64[N], the task group.
        trajectory: int64[N], the episode; unique across groups.
        step: int64[N], 0 at the start of the episode.
        reward: float64[N].
        context_keys: int64[N, K + 1], see `hgpo_gym.memory.keys`.
        penalty: float64[N], subtracted from the return of this step only (such as for an invalid action).
        action: int64[N], the key of the executed action (not of the response); None if not recorded.
        success: bool[N], of the episode, the same on each of its rows; None if not recorded.
        final_keys: int64[N, K + 1], the context keys of the episode's final state, the same on each of its rows, all 0
            if that episode's are not recorded; None if no episode's are.
        extras: named columns with one entry per step, see `hgpo_gym.advantages.columns.COLUMNS`.
        trained: bool[N], the rows to learn from; None is all.
        texts: the text that each key of level 0 is the hash of; None if not recorded.
    """

    group: np.ndarray
    trajectory: np.ndarray
    step: np.ndarray
    reward: np.ndarray
    context_keys: np.ndarray
    penalty: np.ndarray
    _: KW_ONLY
    action: np.ndarray | None = None
    success: np.ndarray | None = None
    final_keys: np.ndarray | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    trained: np.ndarray | None = None
    texts: Mapping[int, str] | None = None

    def __post_init__(self) -> None:
        for name in (*_REQUIRED, *_OPTIONAL):
            if (values := getattr(self, name)) is not None or name in _REQUIRED:
                object.__setattr__(self, name, checked(name, values))
        extras = {name: checked(name, values) for name, values in self.extras.items()}
        object.__setattr__(self, "extras", extras)
        for name, values in self._columns():
            if len(values) != len(self):
                raise ColumnError(f"StepBatch: {name} has {len(values)} rows, group has {len(self)}.")
        if self.final_keys is not None and self.final_keys.shape != self.context_keys.shape:
            raise ColumnError(
                f"StepBatch: final_keys has shape {self.final_keys.shape}, context_keys has {self.context_keys.shape}."
            )
        if reserved := self.extras.keys() & {*_REQUIRED, *_OPTIONAL, "extras", "texts"}:
            raise ValueError(f"StepBatch: extras has {min(reserved)!r}, which is a field: pass it as {min(reserved)}=.")
        _check_episodes(self)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def history_length(self) -> int:
        """K: the deepest level of the context keys."""
        return self.context_keys.shape[1] - 1

    @cached_property
    def group_labels(self) -> np.ndarray:
        """Return the groups as labels int64[N]: 0, 1, 2, ..."""
        return labels(self.group)

    @cached_property
    def trajectory_labels(self) -> np.ndarray:
        """Return the trajectories as labels int64[N]: 0, 1, 2, ..."""
        return labels(self.trajectory)

    @cached_property
    def in_order(self) -> np.ndarray:
        """Return the row indices int64[N] episode after episode, each from its first step to its last."""
        # The last key of lexsort is the primary one.
        return np.lexsort((self.step, self.trajectory))

    @cached_property
    def first_rows(self) -> np.ndarray:
        """Return the row of each episode's first step, int64[episodes], in the order of `trajectory_labels`."""
        rows = self.in_order
        return rows[self.step[rows] == 0]

    @cached_property
    def shared(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the distinct steps of branching episodes, and the copies among the rows; None without copies.

        The first array, int64[M], has one row of each distinct step. The second, int64[N], has the index in the first
        array of the step that each row copies.
        """
        if "response" not in self.extras:
            return None
        _, response = np.unique(self.extras["response"], return_inverse=True)
        # One integer for each pair (group, response).
        step = self.group_labels * (response.max(initial=-1) + 1) + response
        _, first, copies = np.unique(step, return_index=True, return_inverse=True)
        return (first, copies) if len(first) < len(self) else None

    @property
    def copies(self) -> np.ndarray | None:
        """Return int64[N] with equal numbers on all copies of a step; None if no step has copies."""
        return None if self.shared is None else self.shared[1]

    @property
    def distinct(self) -> np.ndarray | slice:
        """Return an index of rows that has each distinct step once."""
        return slice(None) if self.shared is None else self.shared[0]

    @property
    def distinct_rows(self) -> np.ndarray:
        """Return the sorted row numbers of `distinct`, int64."""
        return np.sort(np.arange(len(self))[self.distinct])

    def visits(self, sets: np.ndarray) -> np.ndarray:
        """Return the number of distinct steps in each row's set, int64[N].

        Args:
            sets: int64[N], labels 0, 1, 2, ... of the sets; all copies of a step are in one set.
        """
        return np.bincount(sets[self.distinct])[sets]

    def column(self, name: str, asking: str, kind: str = "Estimator") -> np.ndarray:
        """Return the field or extra of this name.

        Args:
            name: of the column.
            asking: the name of the estimator, or of another `kind` of function, that needs it.
            kind: the first word of the error message.

        Raises:
            ValueError: the batch lacks it; the message names the column, who needs it and how to record it.
        """
        values = getattr(self, name) if name in (*_REQUIRED, *_OPTIONAL, "texts") else self.extras.get(name)
        if values is None:
            raise ValueError(missing_column(name, asking, kind))
        return values

    def take(self, rows: np.ndarray) -> "StepBatch":
        """Return a batch of these rows with all columns. The rows must be whole episodes, in any order.

        Args:
            rows: bool[N], or row numbers.

        Raises:
            ValueError: steps of an episode are missing or repeated.
        """
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
        lengths = np.bincount(self.trajectory_labels)
        selected = np.bincount(self.trajectory_labels[rows], minlength=len(lengths))
        if (cut := np.flatnonzero((selected > 0) & (selected != lengths))).size:
            raise ValueError(
                f"StepBatch.take: {selected[cut[0]]} of the {lengths[cut[0]]} steps of trajectory "
                f"{self.trajectory[self.first_rows[cut[0]]]}: take whole episodes."
            )
        return _with_columns({name: values[rows] for name, values in self._columns()}, self.texts)

    @staticmethod
    def concatenate(batches: Sequence["StepBatch"]) -> "StepBatch":
        """Concatenate batches. Groups and trajectories of later batches are renumbered after those of earlier ones.

        Raises:
            ValueError: no batches, or batches with different columns.
        """
        if not batches:
            raise ValueError("StepBatch.concatenate: pass one batch or more.")
        columns = [dict(batch._columns()) for batch in batches]
        for number, batch_columns in enumerate(columns):
            if different := batch_columns.keys() ^ columns[0].keys():
                name = min(different)
                has, lacks = (number, 0) if name in batch_columns else (0, number)
                raise ValueError(f"StepBatch.concatenate: batch {has} has the column {name!r}, batch {lacks} has not.")
            if batch_columns["context_keys"].shape[1:] != columns[0]["context_keys"].shape[1:]:
                raise ValueError("StepBatch.concatenate: batches with context keys of different history_length.")
        for name in ("group", "trajectory"):
            next_label = 0
            for batch_columns in columns:
                batch_columns[name] = batch_columns[name] - min(0, batch_columns[name].min(initial=0)) + next_label
                next_label = batch_columns[name].max(initial=next_label - 1) + 1
        arrays = {name: np.concatenate([batch_columns[name] for batch_columns in columns]) for name in columns[0]}
        all_texts = [batch.texts for batch in batches if batch.texts is not None]
        texts = (
            {key: text for part in all_texts for key, text in part.items()} if len(all_texts) == len(batches) else None
        )
        return _with_columns(arrays, texts)

    def _columns(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every array of the batch, by name."""
        for name in (*_REQUIRED, *_OPTIONAL):
            if (values := getattr(self, name)) is not None:
                yield name, values
        yield from self.extras.items()

    def check_level(self, level: int, name: str = "level") -> None:
        """Raise ValueError unless the batch has context keys of this level; `name` is the option that sets it."""
        if not 0 <= level <= self.history_length:
            raise ValueError(f"{name}={level}: this batch has context keys for levels 0 to {self.history_length}.")

    def key_groups(self, level: int) -> np.ndarray:
        """Return labels int64[N], equal for steps of a task group with equal key at `level`; -1 without a key.

        Raises:
            ValueError: the batch has no such level.
        """
        self.check_level(level)
        keys = np.ascontiguousarray(self.context_keys[:, level])
        return np.where(keys == 0, -1, pair_labels(keys, self.group_labels))

    def group_sizes(self) -> list[list[int]]:
        """Return, for each level, the number of steps in groups of 1, 2, 3 to 4, 5 to 8 and more steps.

        A step that several episodes share counts once. Steps without a key at a level are in no group, so a level's
        counts need not add up to all steps.
        """
        counts = []
        for level in range(self.history_length + 1):
            groups = self.key_groups(level)[self.distinct]
            groups = groups[groups >= 0]
            sizes = np.bincount(groups)[groups]
            bins = np.searchsorted(SIZE_BOUNDS, sizes)
            counts.append(np.bincount(bins, minlength=len(SIZE_BOUNDS) + 1).tolist())
        return counts

    @classmethod
    def from_records(
        cls,
        *,
        group: Sequence[Hashable],
        trajectory: Sequence[Hashable],
        step: Sequence[int],
        observation: Sequence[str],
        reward: Sequence[float],
        history_length: int,
        action: Sequence[str] | None = None,
        penalty: Sequence[float] | None = None,
        success: Sequence[bool] | None = None,
        final_observation: Sequence[str | None] | None = None,
        key: str | KeyFunction = "observation",
        **extras: Sequence[Any],
    ) -> "StepBatch":
        """Build a batch, including its context keys, from plain lists with one entry per step.

        Args:
            group: any hashable names, of task groups.
            trajectory: any hashable names, of episodes.
            step: whole numbers that count up by one within a trajectory.
            observation: before the action.
            reward: of the action.
            history_length: K, the number of past observations in the context keys.
            action: the executed actions.
            penalty: see the attribute; 0 if absent.
            success: of the episode, repeated on each of its steps.
            final_observation: of the episode, after its last step, repeated on each of its steps; None if unknown.
            key: the key function. Records have no admissible actions; add them to the observation if they should
                count.
            extras: further columns by name, see `hgpo_gym.advantages.columns.COLUMNS`. In a column that is not listed
                there, text becomes its hash; None is NaN among numbers and 0 among text.

        Every column may be a list, an array or a pandas Series. Missing values are None, NaN, NA or masked.

        Raises:
            ValueError: a wrong value; the message names column and row. Wrong are text among numbers or truth values
                ("True", "0.5"), other types among text, infinite numbers and names that cannot be hashed. Missing
                values are wrong except in final_observation, value and unlisted columns. Also raised for lists of
                different lengths, missing or repeated steps, a negative history_length, and a trajectory with two
                groups, outcomes or final observations.
        """
        return cls(
            **arrays_of_records(
                group=group,
                trajectory=trajectory,
                step=step,
                observation=observation,
                reward=reward,
                history_length=history_length,
                action=action,
                penalty=penalty,
                success=success,
                final_observation=final_observation,
                key=key,
                extras=extras,
            )
        )


def labels(values: np.ndarray) -> np.ndarray:
    """Return labels int64[N]: the distinct values numbered from 0 in sorted order."""
    if values.dtype.kind == "i" and len(values):
        lowest, highest = int(values.min()), int(values.max())
        if highest - lowest < 2 * len(values):
            # A dense range of integers: numbering by a table takes linear time, np.unique sorts.
            offset = values - lowest
            seen = np.zeros(highest - lowest + 1, dtype=np.int64)
            seen[offset] = 1
            return (seen.cumsum() - 1).take(offset)
    return np.unique(values, return_inverse=True)[1]


def pair_labels(keys: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return labels int64[N]: the distinct pairs (key, group) numbered from 0, in no particular order.

    A hash table numbers them in linear time, where np.unique sorts.

    Args:
        keys: int64[N].
        groups: int64[N].
    """
    rows = np.arange(len(keys))
    first = np.empty_like(rows)
    bits = len(keys).bit_length()
    table = np.empty(1 << bits, dtype=np.int64)
    pending, hashes = rows, keys.view(np.uint64) + groups.view(np.uint64) * _GOLDEN  # wraps around at 2^64
    pending_keys, pending_groups = keys, groups
    while len(pending):
        hashes = hashes * _GOLDEN
        slots = (hashes >> np.uint64(64 - bits)).view(np.int64)
        # Of the rows that write to one slot the last one stays, and all of them read its number.
        table[slots] = pending
        first[pending] = found = table.take(slots)
        # A row whose slot another pair holds tries again, with other bits of its hash.
        again = np.flatnonzero((keys.take(found) != pending_keys) | (groups.take(found) != pending_groups))
        pending, hashes = pending.take(again), hashes.take(again)
        pending_keys, pending_groups = pending_keys.take(again), pending_groups.take(again)
    return ((first == rows).cumsum() - 1).take(first)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: multiples of it differ in their upper bits."""


def _with_columns(columns: Mapping[str, np.ndarray], texts: Mapping[int, str] | None) -> StepBatch:
    fields = {name: values for name, values in columns.items() if name in (*_REQUIRED, *_OPTIONAL)}
    extras = {name: values for name, values in columns.items() if name not in fields}
    return StepBatch(**fields, extras=extras, texts=texts)


def _check_episodes(batch: StepBatch) -> None:
    """Raise ValueError unless each trajectory has one group, steps 0, 1, 2, ... once each, one outcome and one end."""
    order, trajectory, step = batch.in_order, batch.trajectory, batch.step
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = trajectory[order[1:]] != trajectory[order[:-1]]
    # The running maximum of the episodes' first rows is the first row of each row's own episode.
    expected = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    if (wrong := np.flatnonzero(step[order] != expected)).size:
        row = order[wrong[0]]
        raise ValueError(
            f"StepBatch: trajectory {trajectory[row]} has step {step[row]} where step {expected[wrong[0]]} should be: "
            "each step counts once, from 0, without a gap."
        )
    for name in ("group", *_OF_THE_EPISODE):
        values = getattr(batch, name)
        if values is None:
            continue
        differs = values[order[1:]] != values[order[:-1]]
        differs = differs.any(axis=1) if differs.ndim > 1 else differs
        if (wrong := np.flatnonzero(~first[1:] & differs)).size:
            what = "lies in more than one group" if name == "group" else f"has more than one {name}"
            raise ValueError(f"StepBatch: trajectory {trajectory[order[1:][wrong[0]]]} {what}.")
