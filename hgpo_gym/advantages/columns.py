"""Columns of a batch: their meaning, their source, and the estimators that need them."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hgpo_gym.advantages.kinds import ANY, LABEL, NUMBER, NUMBER_OR_NONE, TRUTH, WHOLE, ColumnKind, as_column

Estimator = TypeVar("Estimator", bound=Callable[..., Any])


class ColumnSpec(NamedTuple):
    """A column of a `StepBatch`: the kind of its entries (None: a mapping), its meaning and source, and its shape."""

    kind: ColumnKind | None
    about: str
    shape: str = "[N]"

    def __str__(self) -> str:
        return self.about if self.kind is None else f"{np.dtype(self.kind.dtype).name}{self.shape}, {self.about}"


COLUMNS = {
    "group": ColumnSpec(WHOLE, "the task group"),
    "trajectory": ColumnSpec(WHOLE, "the episode"),
    "step": ColumnSpec(WHOLE, "0 at the start of the episode"),
    "reward": ColumnSpec(NUMBER, "of the action taken there"),
    "context_keys": ColumnSpec(WHOLE, "see `hgpo_gym.memory.keys`", "[N, K + 1]"),
    "penalty": ColumnSpec(NUMBER, "taken off the return of the step alone"),
    "action": ColumnSpec(WHOLE, "the key of the executed action: rollouts record it; from_records takes action="),
    "success": ColumnSpec(TRUTH, "of the episode: rollouts record it; from_records takes success="),
    "final_keys": ColumnSpec(
        WHOLE,
        "the context keys of what the episode's last step led to, 0 where not recorded: rollouts record them; "
        "from_records takes final_observation=",
        "[N, K + 1]",
    ),
    "trained": ColumnSpec(TRUTH, "whether the row is learned from; None is all"),
    "response": ColumnSpec(
        LABEL,
        "equal for the copies of a step that several episodes of the group share: the samplers `tree` and `best_plan` "
        "record it",
    ),
    "agent": ColumnSpec(LABEL, "the role that acted: rollouts of a team record it"),
    "branch": ColumnSpec(LABEL, "of the episode, the snapshot that it continues: the sampler `tree` records it"),
    "response_tokens": ColumnSpec(WHOLE, "the tokens of the response: a prompt with subgoals (prompt=plan) records it"),
    "boundary": ColumnSpec(TRUTH, "the first step of a subgoal: a prompt with subgoals (prompt=plan) records it"),
    "entropy": ColumnSpec(
        NUMBER, "nats, the mean token entropy of the response: training measures it before the update"
    ),
    "execution": ColumnSpec(
        TRUTH, "of the episode, it went by the best plan from the start: the sampler `best_plan` records it"
    ),
    "milestone": ColumnSpec(TRUTH, "the step reached the next milestone: environments put `milestone` in info"),
    "opening": ColumnSpec(
        TRUTH, "the step is the plan that its episode began with: the sampler `best_plan` records it"
    ),
    "plan": ColumnSpec(LABEL, "of the episode, its plan in the task group: the sampler `best_plan` records it"),
    "plan_tokens": ColumnSpec(
        WHOLE,
        "the tokens of the response up to the end of its subgoal, 0 where it names none: a prompt with subgoals "
        "(prompt=plan) records it",
    ),
    "reward_vector": ColumnSpec(
        NUMBER,
        "several rewards of the episode, repeated on its rows: runs record those of algo.rewards",
        "[N, m]",
    ),
    "state_total": ColumnSpec(WHOLE, "earlier episodes of the run that came through the state: a run counts them"),
    "state_wins": ColumnSpec(WHOLE, "those of them that succeeded: a run counts them"),
    "next_total": ColumnSpec(WHOLE, "as state_total, of the state that the step led to; 0 if unknown"),
    "next_wins": ColumnSpec(WHOLE, "as state_wins, of the state that the step led to; 0 if unknown"),
    "episodes_seen": ColumnSpec(WHOLE, "all earlier episodes of the run: a run counts them"),
    "switch_tokens": ColumnSpec(
        WHOLE,
        "the tokens of the response up to the end of its <switch>: a prompt with subgoals (prompt=plan) records it",
    ),
    "tag": ColumnSpec(LABEL, "what kind of step it is: environments put `tag` in info"),
    "tag_reward": ColumnSpec(NUMBER, "the reward of the step's tag: environments put `tag_reward` in info"),
    "tree": ColumnSpec(LABEL, "of the episode, the tree that it is a leaf of: the sampler `tree` records it"),
    "texts": ColumnSpec(
        None,
        "the text that each context key of level 0 is the hash of: rollouts record it; from_records takes observation=",
    ),
    "truncated": ColumnSpec(TRUTH, "of the episode, ended by the step limit: rollouts record it"),
    "turn_reward": ColumnSpec(NUMBER, "a reward of the turn alone: environments put `turn_reward` in info"),
    "value": ColumnSpec(
        NUMBER_OR_NONE,
        "the value of the state before the step: the sampler `restarts` records it (NaN where nothing was restarted), "
        "or the run's critic predicts it, for estimators that give it targets",
    ),
    "value_high": ColumnSpec(NUMBER, "over subgoals: the run's critic predicts it at the end of the prompt"),
    "value_low": ColumnSpec(NUMBER, "within a subgoal: the run's critic predicts it after the subgoal"),
}
"""The columns that estimators of this package may need. Other columns may have any name, and hold finite numbers, truth
values or names."""

STATE_COUNTS = ("state_total", "state_wins", "next_total", "next_wins", "episodes_seen")
"""The columns that a run counts over its earlier episodes."""


def checked(name: str, values: Any) -> np.ndarray:
    """Return the column as an array of its kind. Raises ColumnError, which names column, row and value."""
    column = COLUMNS.get(name)
    kind, shape = (ANY, "") if column is None else (column.kind or ANY, column.shape)
    return as_column(name, values, kind, shape)


def needs(*columns: str) -> Callable[[Estimator], Estimator]:
    """Mark an estimator with the columns that it needs; a batch without them raises an error before it runs."""

    def mark(estimator: Estimator) -> Estimator:
        estimator.needs = columns  # type: ignore[attr-defined]
        return estimator

    return mark


def needed_by(estimator: Callable[..., Any]) -> tuple[str, ...]:
    """Return the columns that the estimator always needs; options may need more."""
    return getattr(estimator, "needs", ())


def learns_values(estimator: Estimator) -> Estimator:
    """Mark an estimator that returns targets for the values that it needs. A run trains a critic on them, with the
    settings `algo.critic`."""
    estimator.learns_values = True  # type: ignore[attr-defined]
    return estimator


def has_critic(estimator: Callable[..., Any]) -> bool:
    """Return True if the estimator takes values from a critic."""
    return getattr(estimator, "learns_values", False)


def over_the_batch(estimator: Estimator) -> Estimator:
    """Mark an estimator whose advantages depend on all groups of the batch (it whitens, scales or counts over them)."""
    estimator.is_over_the_batch = True  # type: ignore[attr-defined]
    return estimator


def is_over_the_batch(estimator: Callable[..., Any]) -> bool:
    """Return whether, with default options, a group's advantages depend on other task groups of the batch."""
    return getattr(estimator, "is_over_the_batch", False)


def missing_column(column: str, name: str, kind: str = "Estimator") -> str:
    """Return the error message for a column that a batch lacks and the estimator, or another `kind`, needs."""
    described = COLUMNS.get(column, "a column of your own: pass it in extras={...}, one entry a step")
    return f"{kind} {name!r} needs the column {column!r}, which this batch does not have ({described})."
