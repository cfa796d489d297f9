"""Shared parts of the environments: names of the splits, the choice of test tasks, and the reward of success."""

import math
from typing import Literal

from hgpo_gym.files import content_key

Split = Literal["train", "test", "all"]
"""The splits of generated tasks; no task is in both `train` and `test`."""
SUCCESS_REWARD = 10.0
MOST_TASKS = 1_000_000
"""Limit for an environment that lists its tasks one by one."""


def check_number_of_tasks(options: str, choices: int, places: int = 1) -> None:
    """Raise ValueError, naming the options that `options` quotes, if `choices ** places` is above `MOST_TASKS`."""
    if choices > 1 and places * math.log10(choices) > math.log10(MOST_TASKS):
        raise ValueError(f"{options}: that is more than {MOST_TASKS:,} tasks; choose fewer.")


def in_split(split: Split, number: int, *, one_in: int = 3) -> bool:
    """Return whether a task is part of a split: every third number is `test`, the others are `train`, and `all` has
    both.

    Args:
        split: its name.
        number: of the task, made from its content alone; `hashed` makes one of a text.
        one_in: a half, a third, ... of the tasks is for testing.
    """
    return split == "all" or split == ("train" if number % one_in else "test")


def hashed(text: str) -> int:
    """Return a number for a text, the same on every machine."""
    return int(content_key(text), 16)
