"""StepBatch: the arrays that credit assignment works on, one row a step that was actually taken."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hgpo_gym.memory.keys import KeyFunction, chain_keys, hash_text, key_function, link

SIZE_BOUNDS = (1, 2, 4, 8)
"""The sizes of groups are counted as 1, 2, 3 to 4, 5 to 8 and more."""


@dataclass(frozen=True)
class StepBatch:
    """Grouped rollouts, a row a step. Rows may come in any order; there are no padding rows.

    Attributes:
        group: int64[N], the task group.
        trajectory: int64[N], the episode; numbered through all groups.
        step: int64[N], 0 at the start of the episode.
        reward: float64[N].
        context_keys: int64[N, K + 1], see `hgpo_gym.memory.keys`.
        penalty: float64[N], taken off the return of that step alone (an invalid action's, for example).
    """

    group: np.ndarray
    trajectory: np.ndarray
    step: np.ndarray
    reward: np.ndarray
    context_keys: np.ndarray
    penalty: np.ndarray

    def __post_init__(self) -> None:
        for name in ("trajectory", "step", "reward", "context_keys", "penalty"):
            if len(getattr(self, name)) != len(self):
                raise ValueError(f"StepBatch: {name} has {len(getattr(self, name))} rows, group has {len(self)}.")
        if self.context_keys.ndim != 2:
            raise ValueError(f"StepBatch: context_keys has shape {self.context_keys.shape}, expected [N, K + 1].")
        _check_episodes(self.group, self.trajectory, self.step)

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

    def key_groups(self, level: int) -> np.ndarray:
        """int64[N]: equal for steps of the same task group with equal key at `level`; -1 where there is no key.

        Raises:
            ValueError: the batch has no such level.
        """
        if not 0 <= level <= self.history_length:
            raise ValueError(f"level={level}: this batch has context keys for levels 0 to {self.history_length}.")
        keys = np.ascontiguousarray(self.context_keys[:, level])
        in_group = link(keys.view(np.uint64), self.group_labels.astype(np.uint64))
        return np.where(keys == 0, -1, labels(in_group))

    def group_sizes(self) -> list[list[int]]:
        """For each level, how many steps are in groups of 1, of 2, of 3 to 4, of 5 to 8 and of more steps.

        Steps without a key at the level are in no group, so a level's counts need not add up to all steps.
        """
        counts = []
        for level in range(self.history_length + 1):
            groups = self.key_groups(level)
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
        key: str | KeyFunction = "observation",
    ) -> "StepBatch":
        """A batch from plain lists, one entry a step, context keys included.

        Args:
            group: any hashable names, of task groups.
            trajectory: any hashable names, of episodes.
            step: whole numbers that count up by one within a trajectory.
            observation: what was seen before acting.
            reward: of the action taken there.
            history_length: K, how far the context keys look back.
            action: the actions, for key functions that use them.
            penalty: see the attribute; 0 if absent.
            key: the key function. Records have no admissible actions; canonicalise the observations beforehand where
                those should count.

        Raises:
            ValueError: lists of different lengths, a step that is missing or repeated, a trajectory in two groups, a
                negative history_length.
        """
        lists = {"trajectory": trajectory, "step": step, "observation": observation, "reward": reward}
        optional = {"action": action, "penalty": penalty}
        for name, values in (lists | {name: values for name, values in optional.items() if values is not None}).items():
            if len(values) != len(group):
                raise ValueError(f"from_records: {name} has {len(values)} entries, group has {len(group)}.")
        if history_length < 0:
            raise ValueError(f"history_length={history_length}: choose 0 or more observations.")
        function = key_function(key)
        if function.with_action and action is None:
            raise ValueError(f"key={key!r} compares actions: pass action=, one a step.")
        groups, trajectories = _number(group), _number(trajectory)
        steps = np.asarray(step, dtype=np.int64)
        order = np.lexsort((steps, trajectories))
        hashes = _hash_all([function.canonical(text, ()) for text in observation])
        keys = np.empty((len(groups), history_length + 1), dtype=np.int64)
        keys[order] = chain_keys(
            hashes[order],
            steps[order] == 0,
            history_length,
            _hash_all(action)[order] if function.with_action and action is not None else None,
        )
        return cls(
            group=groups,
            trajectory=trajectories,
            step=steps,
            reward=np.asarray(reward, dtype=np.float64),
            context_keys=keys,
            penalty=np.zeros(len(groups)) if penalty is None else np.asarray(penalty, dtype=np.float64),
        )


def labels(values: np.ndarray) -> np.ndarray:
    """int64[N]: the distinct values numbered from 0 in sorted order."""
    return np.unique(values, return_inverse=True)[1]


def _number(names: Sequence[Hashable]) -> np.ndarray:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _hash_all(texts: Sequence[str]) -> np.ndarray:
    hashes = {text: hash_text(text) for text in set(texts)}
    return np.array([hashes[text] for text in texts], dtype=np.uint64)


def _check_episodes(group: np.ndarray, trajectory: np.ndarray, step: np.ndarray) -> None:
    """Every trajectory lies in one group and has the steps 0, 1, 2, ... once each."""
    order = np.lexsort((step, trajectory))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = trajectory[order[1:]] != trajectory[order[:-1]]
    expected = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    if (wrong := np.flatnonzero(step[order] != expected)).size:
        row = order[wrong[0]]
        raise ValueError(
            f"StepBatch: trajectory {trajectory[row]} has step {step[row]} where step {expected[wrong[0]]} should be: "
            "each step counts once, from 0, without a gap."
        )
    same = ~first[1:]
    if (wrong := np.flatnonzero(same & (group[order[1:]] != group[order[:-1]]))).size:
        row = order[1:][wrong[0]]
        raise ValueError(f"StepBatch: trajectory {trajectory[row]} lies in more than one group.")
