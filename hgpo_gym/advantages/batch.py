"""StepBatch: the arrays that credit assignment works on, one row a step that was actually taken."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hgpo_gym.advantages.columns import checked, missing_column
from hgpo_gym.advantages.kinds import ColumnError
from hgpo_gym.advantages.records import arrays_of_records
from hgpo_gym.memory.keys import KeyFunction, link

SIZE_BOUNDS = (1, 2, 4, 8)
"""The sizes of groups are counted as 1, 2, 3 to 4, 5 to 8 and more."""

_REQUIRED = ("group", "trajectory", "step", "reward", "context_keys", "penalty")
_OPTIONAL = ("action", "success", "final_keys", "trained")
_OF_THE_EPISODE = ("success", "final_keys")


@dataclass(frozen=True)
class StepBatch:
    """Grouped rollouts, a row a step. Rows may come in any order; there are no padding rows.

    Columns may be given as whatever holds such values exactly (other number types, lists, Series); they are kept as
    arrays of the types below. Anything else is refused by column and row.

    Attributes:
        group: int64[N], the task group.
        trajectory: int64[N], the episode; numbered through all groups.
        step: int64[N], 0 at the start of the episode.
        reward: float64[N].
        context_keys: int64[N, K + 1], see `hgpo_gym.memory.keys`.
        penalty: float64[N], taken off the return of that step alone (an invalid action's, for example).
        action: int64[N], the key of the action that was executed (not of the response); None where not recorded.
        success: bool[N], of the episode, the same on each of its rows; None where not recorded.
        final_keys: int64[N, K + 1], the context keys of what the episode's last step led to, the same on each of its
            rows, all 0 where that was not recorded; None where it never was.
        extras: named columns with a row a step, see `hgpo_gym.advantages.columns.COLUMNS`.
        trained: bool[N], the rows that are learned from; None is all.
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
        if taken := self.extras.keys() & {*_REQUIRED, *_OPTIONAL, "extras"}:
            raise ValueError(f"StepBatch: extras has {min(taken)!r}, which is a field: pass it as {min(taken)}=.")
        _check_episodes(self)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def history_length(self) -> int:
        """K: the deepest level of the context keys."""
        return self.context_keys.shape[1] - 1

    @cached_property
    def group_labels(self) -> np.ndarray:
        """int64[N], the groups as 0, 1, 2, ..."""
        return labels(self.group)

    @cached_property
    def trajectory_labels(self) -> np.ndarray:
        """int64[N], the trajectories as 0, 1, 2, ..."""
        return labels(self.trajectory)

    @cached_property
    def in_order(self) -> np.ndarray:
        """int64[N], the rows episode after episode, each from its first step to its last."""
        return np.lexsort((self.step, self.trajectory))

    @cached_property
    def first_rows(self) -> np.ndarray:
        """int64[episodes], the row of each episode's first step, in the order of `trajectory_labels`."""
        rows = self.in_order
        return rows[self.step[rows] == 0]

    @cached_property
    def shared(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Where episodes have steps in common, those before a branch: int64[M], a row of each distinct step, and
        int64[N], which of these each row is a copy of. None where no step has a copy."""
        if "answer" not in self.extras:
            return None
        _, answer = np.unique(self.extras["answer"], return_inverse=True)
        step = self.group_labels * (answer.max(initial=-1) + 1) + answer
        _, first, copies = np.unique(step, return_index=True, return_inverse=True)
        return (first, copies) if len(first) < len(self) else None

    @property
    def copies(self) -> np.ndarray | None:
        """int64[N], the same number on all rows that are one step; None where no step has a copy."""
        return None if self.shared is None else self.shared[1]

    @property
    def distinct(self) -> np.ndarray | slice:
        """Rows among which each distinct step stands once."""
        return slice(None) if self.shared is None else self.shared[0]

    @property
    def distinct_rows(self) -> np.ndarray:
        """int64: the same rows as numbers, in order."""
        return np.sort(np.arange(len(self))[self.distinct])

    def visits(self, sets: np.ndarray) -> np.ndarray:
        """int64[N]: how many distinct steps the set of each row has.

        Args:
            sets: int64[N], 0, 1, 2, ... label the sets; the copies of a step are in the same one.
        """
        return np.bincount(sets[self.distinct])[sets]

    def column(self, name: str, asking: str, kind: str = "Estimator") -> np.ndarray:
        """The field or extra of this name.

        Args:
            name: of the column.
            asking: the name of the estimator that needs it, or of what `kind` says.
            kind: as it begins a sentence.

        Raises:
            ValueError: the batch does not have it; names the column, who asks and how to record it.
        """
        values = getattr(self, name) if name in (*_REQUIRED, *_OPTIONAL) else self.extras.get(name)
        if values is None:
            raise ValueError(missing_column(name, asking, kind))
        return values

    def take(self, rows: np.ndarray) -> "StepBatch":
        """These rows, all columns along: whole episodes, in any order.

        Args:
            rows: bool[N], or the numbers of rows.

        Raises:
            ValueError: steps of an episode are left out or taken twice.
        """
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
        lengths = np.bincount(self.trajectory_labels)
        taken = np.bincount(self.trajectory_labels[rows], minlength=len(lengths))
        if (cut := np.flatnonzero((taken > 0) & (taken != lengths))).size:
            raise ValueError(
                f"StepBatch.take: {taken[cut[0]]} of the {lengths[cut[0]]} steps of trajectory "
                f"{self.trajectory[self.first_rows[cut[0]]]}: take whole episodes."
            )
        return _with_columns({name: values[rows] for name, values in self._columns()})

    @staticmethod
    def concatenate(batches: Sequence["StepBatch"]) -> "StepBatch":
        """Batches one after the other as one; groups and trajectories of later ones get numbers after the earlier's.

        Raises:
            ValueError: no batches, or batches that have not the same columns.
        """
        if not batches:
            raise ValueError("StepBatch.concatenate: pass one batch or more.")
        columns = [dict(batch._columns()) for batch in batches]
        for number, own in enumerate(columns):
            if different := own.keys() ^ columns[0].keys():
                name = min(different)
                has, lacks = (number, 0) if name in own else (0, number)
                raise ValueError(f"StepBatch.concatenate: batch {has} has the column {name!r}, batch {lacks} has not.")
            if own["context_keys"].shape[1:] != columns[0]["context_keys"].shape[1:]:
                raise ValueError("StepBatch.concatenate: batches with context keys of different history_length.")
        for name in ("group", "trajectory"):
            following = 0
            for own in columns:
                own[name] = own[name] - min(0, own[name].min(initial=0)) + following
                following = own[name].max(initial=following - 1) + 1
        return _with_columns({name: np.concatenate([own[name] for own in columns]) for name in columns[0]})

    def _columns(self) -> Iterator[tuple[str, np.ndarray]]:
        """Every array that the batch has, by name."""
        for name in (*_REQUIRED, *_OPTIONAL):
            if (values := getattr(self, name)) is not None:
                yield name, values
        yield from self.extras.items()

    def check_level(self, level: int, name: str = "level") -> None:
        """Raise ValueError unless the batch has context keys of this level, which the option `name` asks for."""
        if not 0 <= level <= self.history_length:
            raise ValueError(f"{name}={level}: this batch has context keys for levels 0 to {self.history_length}.")

    def key_groups(self, level: int) -> np.ndarray:
        """int64[N]: equal for steps of the same task group with equal key at `level`; -1 where there is no key.

        Raises:
            ValueError: the batch has no such level.
        """
        self.check_level(level)
        keys = np.ascontiguousarray(self.context_keys[:, level])
        in_group = link(keys.view(np.uint64), self.group_labels.astype(np.uint64))
        return np.where(keys == 0, -1, labels(in_group))

    def group_sizes(self) -> list[list[int]]:
        """For each level, how many steps are in groups of 1, of 2, of 3 to 4, of 5 to 8 and of more steps. A step that
        several episodes share counts once.

        Steps without a key at the level are in no group, so a level's counts need not add up to all steps.
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
        """A batch from plain lists, one entry a step, context keys included.

        Args:
            group: any hashable names, of task groups.
            trajectory: any hashable names, of episodes.
            step: whole numbers that count up by one within a trajectory.
            observation: what was seen before acting.
            reward: of the action taken there.
            history_length: K, how far the context keys look back.
            action: the actions that were executed.
            penalty: see the attribute; 0 if absent.
            success: whether the episode succeeded, on each of its steps.
            final_observation: what the episode's last step led to, on each of its steps; None where it is not known.
            key: the key function. Records have no admissible actions; canonicalise the observations beforehand where
                those should count.
            extras: further columns by name, see `hgpo_gym.advantages.columns.COLUMNS`. In one of another name text
                becomes its hash; None is NaN among numbers and 0 among text.

        Every column may be a list, an array or a pandas Series. Missing values are None, NaN, NA or masked.

        Raises:
            ValueError: names the column and the row: a text among numbers or truth values ("True", "0.5"), a missing
                value (but for final_observation, value and columns of other names), an infinite number, a text that
                is none, a name that cannot be hashed. Lists of different lengths, a step that is missing or repeated,
                a trajectory in two groups, with two outcomes or two ends, a negative history_length.
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
    """int64[N]: the distinct values numbered from 0 in sorted order."""
    return np.unique(values, return_inverse=True)[1]


def _with_columns(columns: Mapping[str, np.ndarray]) -> StepBatch:
    fields = {name: values for name, values in columns.items() if name in (*_REQUIRED, *_OPTIONAL)}
    extras = {name: values for name, values in columns.items() if name not in fields}
    return StepBatch(**fields, extras=extras)


def _check_episodes(batch: StepBatch) -> None:
    """Every trajectory lies in one group, has the steps 0, 1, 2, ... once each, one outcome and one end."""
    order, trajectory, step = batch.in_order, batch.trajectory, batch.step
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = trajectory[order[1:]] != trajectory[order[:-1]]
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
