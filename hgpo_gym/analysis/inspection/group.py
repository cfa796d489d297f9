"""One task group of a saved rollout, with the advantages of every estimator."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS, estimate, needed_by
from hgpo_gym.advantages.statistics import discounted_returns, mean_over_copies
from hgpo_gym.rollouts.saved import SavedRollout
from hgpo_gym.suggest import unknown_name

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """The episodes of one task in a rollout.

    Attributes:
        rollout: the rollout of the whole iteration.
        number: the number of the group in it, from 1.
        rows: int64[N], the group's rows in the batch.
        gamma: discount of `returns`.
        returns: float64[all rows], the discounted returns G_t. A step that several episodes share has the mean over its
            copies.
        options: the options of each estimator, by its label.
        advantages: float64[all rows] of each estimator, as in training; also means over copies.
    """

    rollout: SavedRollout
    number: int
    rows: np.ndarray
    gamma: float
    returns: np.ndarray
    options: dict[str, Options]
    advantages: dict[str, np.ndarray]

    @property
    def task_id(self) -> str:
        return self.rollout.episodes[self.first_trajectory].task_id

    @property
    def first_trajectory(self) -> int:
        return int(self.rollout.batch.trajectory[self.rows].min())

    @property
    def distinct(self) -> np.ndarray:
        """The group's rows, with one row for a step that several episodes share."""
        return np.intersect1d(self.rows, self.rollout.batch.distinct_rows)

    def episode_number(self, row: int) -> int:
        """Return the number of the row's episode in the group, from 1."""
        return int(self.rollout.batch.trajectory[row]) - self.first_trajectory + 1

    def name(self, row: int) -> str:
        """Return `episode.step`, both from 1."""
        return f"{self.episode_number(row)}.{self.rollout.batch.step[row] + 1}"

    def most_disputed(self) -> int:
        """Return the row on which the estimators differ most."""
        stacked = np.array([values[self.rows] for values in self.advantages.values()])
        return int(self.rows[np.argmax(np.ptp(stacked, axis=0))])

    def row(self, name: str) -> int:
        """Return the row of `episode.step`.

        Raises:
            ValueError: another form, or an unknown step.
        """
        match = re.fullmatch(r"(\d+)\.(\d+)", name)
        if match is None:
            raise ValueError(f"step {name!r}: write episode.step, both counted from 1, for example 3.5.")
        episode, step = map(int, match.groups())
        trajectories = self.rollout.batch.trajectory[self.rows] - self.first_trajectory + 1
        if episode not in trajectories:
            raise ValueError(f"step {name}: the group has the episodes 1 to {trajectories.max()}.")
        episode_rows = self.rows[trajectories == episode]
        matching_rows = episode_rows[self.rollout.batch.step[episode_rows] == step - 1]
        if not len(matching_rows):
            raise ValueError(f"step {name}: episode {episode} has the steps 1 to {len(episode_rows)}.")
        return int(matching_rows[0])


def find_group(rollout: SavedRollout, task: str) -> int:
    """Return the number of the task's group. `task` is that number, a task id, or a part of exactly one.

    Raises:
        ValueError: no group fits, or several do.
    """
    ids = group_task_ids(rollout)
    # A number takes precedence over a task id that contains it.
    if task in map(str, ids):
        return int(task)
    matches = [number for number, task_id in ids.items() if task_id == task] or [
        number for number, task_id in ids.items() if task in task_id
    ]
    if not matches:
        raise ValueError(unknown_name("task", task, [f"{number} ({task_id})" for number, task_id in ids.items()]))
    if len(matches) > 1:
        raise ValueError(
            f"Several groups fit the task {task!r}: "
            + ", ".join(f"{number} ({ids[number]})" for number in matches)
            + ". Give the number of one."
        )
    return matches[0]


def group_task_ids(rollout: SavedRollout) -> dict[int, str]:
    """Return the task of every group, by its number."""
    batch = rollout.batch
    numbers, first_rows = np.unique(batch.group, return_index=True)
    return {
        int(number) + 1: rollout.episodes[batch.trajectory[row]].task_id
        for number, row in zip(numbers, first_rows, strict=True)
    }


def open_group(rollout: SavedRollout, number: int, settings: Any) -> Group:
    """Return a group with every estimator's advantages.

    Args:
        rollout: the rollout of the whole iteration; estimators get all of it, as in training.
        number: the number of the group, from 1.
        settings: the run's `algo` section: the options of the estimator that it trained with.
    """
    options = estimator_options(settings)
    gamma = settings.get("gamma", options["hgpo"]["gamma"])
    batch = rollout.batch
    return Group(
        rollout=rollout,
        number=number,
        rows=np.flatnonzero(batch.group == number - 1),
        gamma=gamma,
        returns=mean_over_copies(batch, discounted_returns(batch, gamma)),
        options=options,
        advantages={name: mean_over_copies(batch, estimate(name, batch, **kwargs)) for name, kwargs in options.items()},
    )


def estimator_options(settings: Any) -> dict[str, Options]:
    """Return the options of the run's estimator, then the defaults of the other ones at the run's discount.

    Estimators that need columns which not every run has are left out.
    """
    run_options = {key: value for key, value in settings.items() if key != "name"}
    discount = {"gamma": run_options["gamma"]} if "gamma" in run_options else {}
    defaults = {
        name: {option: parameter.default for option, parameter in ESTIMATORS.options(name).items()}
        for name in ESTIMATORS
        if name != settings["name"] and not needed_by(ESTIMATORS[name])
    }
    return {settings["name"]: run_options} | {
        name: options | (discount if "gamma" in options else {}) for name, options in defaults.items()
    }
