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
        window: the k + 1 observations that are shared, oldest first; empty where the episode had not as many yet.
        members: int64[n], the steps that share them, itself among them; a row of each.
        mean, std: of their returns G_t, with n; not a number where there are none.
        relative: the step's return relative to them, as HGPO takes it.
    """

    level: int
    window: tuple[str, ...]
    members: np.ndarray
    mean: float
    std: float
    relative: float


def levels_of(group: Group, row: int) -> list[KeyLevel]:
    """The levels 0 to K of a step, each a part of the one before."""
    batch = group.rollout.batch
    relative = partial(relative_to_group, norm=group.options["hgpo"]["norm"], ddof=0)
    itself = [row] if batch.copies is None else np.flatnonzero(batch.copies == batch.copies[row])
    steps = np.sort(np.append(np.setdiff1d(group.distinct, itself), row))
    found = []
    for level in range(batch.history_length + 1):
        labels = batch.key_groups(level)
        members = steps[labels[steps] == labels[row]] if labels[row] >= 0 else np.empty(0, dtype=np.int64)
        returns = group.returns[members]
        found.append(
            KeyLevel(
                level=level,
                window=_window(group, row, level) if len(members) else (),
                members=members,
                mean=float(returns.mean()) if len(members) else float("nan"),
                std=float(returns.std()) if len(members) else float("nan"),
                relative=float(over_unique_steps(batch, relative, group.returns, labels)[row]),
            )
        )
    return found


def _window(group: Group, row: int, level: int) -> tuple[str, ...]:
    """What was seen in the last turns; a team may answer several times in one."""
    batch = group.rollout.batch
    own = group.rows[batch.trajectory[group.rows] == batch.trajectory[row]]
    turns = batch.extras.get("turn", batch.step)  # rollouts of earlier versions have no extras
    by_turn = {int(turns[other]): other for other in own}
    return tuple(group.rollout.observations[by_turn[turn]] for turn in range(turns[row] - level, turns[row] + 1))
