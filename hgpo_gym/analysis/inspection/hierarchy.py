"""The hierarchy of groups that a step lies in: the steps with the same observation, the same last two, and so on."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from hgpo_gym.advantages.statistics import over_unique_steps, relative_to_group
from hgpo_gym.analysis.inspection.group import Group


@dataclass(frozen=True)
class KeyLevel:
    """The steps of the group that share k + 1 observations with a step.

    Attributes:
        level: k.
        window: the k + 1 shared observations, oldest first; empty if the episode is not that long yet.
        members: int64[n], the rows of the steps that share them, including the step itself.
        mean, std: of the members' returns G_t, divided by n; NaN without members.
        relative: the step's return relative to the members, as HGPO computes it.
    """

    level: int
    window: tuple[str, ...]
    members: np.ndarray
    mean: float
    std: float
    relative: float


def levels_of(group: Group, row: int) -> list[KeyLevel]:
    """Return the levels 0 to K of a step, each a subset of the one before."""
    batch = group.rollout.batch
    relative = partial(relative_to_group, norm=group.options["hgpo"]["norm"], ddof=0)
    # Copies of the step in other episodes must not count twice among the members.
    itself = [row] if batch.copies is None else np.flatnonzero(batch.copies == batch.copies[row])
    steps = np.sort(np.append(np.setdiff1d(group.distinct, itself), row))
    levels = []
    for level in range(batch.history_length + 1):
        labels = batch.key_groups(level)
        # Label -1 marks steps whose history is too short for the level.
        members = steps[labels[steps] == labels[row]] if labels[row] >= 0 else np.empty(0, dtype=np.int64)
        returns = group.returns[members]
        levels.append(
            KeyLevel(
                level=level,
                window=_window(group, row, level) if len(members) else (),
                members=members,
                mean=float(returns.mean()) if len(members) else float("nan"),
                std=float(returns.std()) if len(members) else float("nan"),
                relative=float(over_unique_steps(batch, relative, group.returns, labels)[row]),
            )
        )
    return levels


def _window(group: Group, row: int, level: int) -> tuple[str, ...]:
    """Return the observations of the last turns; in a team a turn may have several responses."""
    batch = group.rollout.batch
    episode_rows = group.rows[batch.trajectory[group.rows] == batch.trajectory[row]]
    turns = batch.extras.get("turn", batch.step)  # rollouts of earlier versions have no extras
    by_turn = {int(turns[member]): member for member in episode_rows}
    return tuple(group.rollout.observations[by_turn[turn]] for turn in range(turns[row] - level, turns[row] + 1))
