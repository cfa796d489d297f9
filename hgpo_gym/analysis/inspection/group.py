"""One task group of a kept rollout, and what each estimator makes of its steps."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgpo_gym.advantages import ESTIMATORS, estimate, needed_by
from hgpo_gym.advantages.statistics import discounted_returns, mean_over_copies
from hgpo_gym.rollouts.saved import KeptRollout
from hgpo_gym.suggest import unknown_name

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """The episodes of one task in a rollout.

    Attributes:
        rollout: of the whole iteration.
        number: of the group in it, from 1.
        rows: int64[N], its rows in the batch.
        gamma: discount of `returns`.
        returns: float64[all rows], the discounted returns G_t: the mean over the copies of a step that several episodes
            share.
        options: of each estimator, by its label.
        advantages: float64[all rows] of each estimator, as training takes them: likewise.
    """

    rollout: KeptRollout
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
        """Those of `rows` among which a step that several episodes share stands once."""
        return np.intersect1d(self.rows, self.rollout.batch.distinct_rows)

    def episode_number(self, row: int) -> int:
        """The row's episode in the group, from 1."""
        return int(self.rollout.batch.trajectory[row]) - self.first_trajectory + 1

    def name(self, row: int) -> str:
        """`episode.step`, both from 1."""
        return f"{self.episode_number(row)}.{self.rollout.batch.step[row] + 1}"

    def most_disputed(self) -> int:
        """The row on which the estimators differ most."""
        stacked = np.array([values[self.rows] for values in self.advantages.values()])
        return int(self.rows[np.argmax(np.ptp(stacked, axis=0))])

    def row(self, name: str) -> int:
        """The row of `episode.step`.

        Raises:
            ValueError: not of that form, or no such step.
        """
        match = re.fullmatch(r"(\d+)\.(\d+)", name)
        if match is None:
            raise ValueError(f"step {name!r}: write episode.step, both counted from 1, for example 3.5.")
        episode, step = map(int, match.groups())
        trajectories = self.rollout.batch.trajectory[self.rows] - self.first_trajectory + 1
        if episode not in trajectories:
            raise ValueError(f"step {name}: the group has the episodes 1 to {trajectories.max()}.")
        own = self.rows[trajectories == episode]
        found = own[self.rollout.batch.step[own] == step - 1]
        if not len(found):
            raise ValueError(f"step {name}: episode {episode} has the steps 1 to {len(own)}.")
        return int(found[0])


def find_group(rollout: KeptRollout, task: str) -> int:
    """The number of the task's group: `task` is that number, a task id, or a part of just one.

    Raises:
        ValueError: no group or several fit.
    """
    ids = group_task_ids(rollout)
    if task in map(str, ids):
        return int(task)
    fitting = [number for number, own in ids.items() if own == task] or [
        number for number, own in ids.items() if task in own
    ]
    if not fitting:
        raise ValueError(unknown_name("task", task, [f"{number} ({own})" for number, own in ids.items()]))
    if len(fitting) > 1:
        raise ValueError(
            f"Several groups fit the task {task!r}: "
            + ", ".join(f"{number} ({ids[number]})" for number in fitting)
            + ". Give the number of one."
        )
    return fitting[0]


def group_task_ids(rollout: KeptRollout) -> dict[int, str]:
    """The task of every group, by its number."""
    batch = rollout.batch
    numbers, first_rows = np.unique(batch.group, return_index=True)
    return {
        int(number) + 1: rollout.episodes[batch.trajectory[row]].task_id
        for number, row in zip(numbers, first_rows, strict=True)
    }


def open_group(rollout: KeptRollout, number: int, settings: Any) -> Group:
    """A group with every estimator's advantages.

    Args:
        rollout: of the whole iteration; estimators get all of it, as in training.
        number: of the group, from 1.
        settings: the run's `algo` section; they replace the file's for its own estimator.
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
        advantages={name: mean_over_copies(batch, estimate(name, batch, **own)) for name, own in options.items()},
    )


def estimator_options(settings: Any) -> dict[str, Options]:
    """The options of the run's own estimator, then of each other one that needs no column beside those of every run its
    defaults, at the run's discount."""
    own = {key: value for key, value in settings.items() if key != "name"}
    discount = {"gamma": own["gamma"]} if "gamma" in own else {}
    others = {
        name: {option: parameter.default for option, parameter in ESTIMATORS.options(name).items()}
        for name in ESTIMATORS
        if name != settings["name"] and not needed_by(ESTIMATORS[name])
    }
    return {settings["name"]: own} | {
        name: options | (discount if "gamma" in options else {}) for name, options in others.items()
    }
