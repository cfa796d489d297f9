"""Columns beyond rewards and keys: what they are, how they are recorded, and which estimator needs which."""

from collections.abc import Callable
from typing import Any, TypeVar

Estimator = TypeVar("Estimator", bound=Callable[..., Any])

COLUMNS = {
    "action": "int64[N], the key of the executed action: rollouts record it; from_records takes action=",
    "success": "bool[N], of the episode: rollouts record it; from_records takes success=",
    "final_keys": "int64[N, K + 1], the context keys of what the episode's last step led to, 0 where not recorded: "
    "rollouts record them; from_records takes final_observation=",
    "trained": "bool[N], whether the row is learned from; None is all",
    "answer": "int64[N], equal for the copies of a step that several episodes of the group share: the samplers `tree` "
    "and `best_plan` record it",
    "agent": "int64[N], the role that acted: rollouts of a team record it",
    "branch": "int64[N], of the episode, the snapshot that it continues: the sampler `tree` records it",
    "answer_tokens": "int64[N], the tokens of the answer: a prompt with subgoals (prompt=plan) records it",
    "boundary": "bool[N], the first step of a subgoal: a prompt with subgoals (prompt=plan) records it",
    "entropy": "float64[N], nats, the mean token entropy of the response: training measures it before the update",
    "execution": "bool[N], of the episode, it went by the best plan from the start: the sampler `best_plan` records it",
    "milestone": "bool[N], the step reached the next milestone: environments put `milestone` in info",
    "opening": "bool[N], the step is the plan that its episode began with: the sampler `best_plan` records it",
    "plan": "int64[N], of the episode, its plan in the task group: the sampler `best_plan` records it",
    "plan_tokens": "int64[N], the tokens of the answer up to the end of its subgoal, 0 where it names none: a prompt "
    "with subgoals (prompt=plan) records it",
    "reward_vector": "float64[N, m], several rewards of the episode, repeated on its rows: runs record those of "
    "rollout.rewards",
    "switch_tokens": "int64[N], the tokens of the answer up to the end of its <switch>: a prompt with subgoals "
    "(prompt=plan) records it",
    "tag": "int64[N], what kind of step it is: environments put `tag` in info",
    "tag_reward": "float64[N], the reward of the step's tag: environments put `tag_reward` in info",
    "tree": "int64[N], of the episode, the tree that it is a leaf of: the sampler `tree` records it",
    "truncated": "bool[N], of the episode, ended by the step limit: rollouts record it",
    "turn_reward": "float64[N], a reward of the turn alone: environments put `turn_reward` in info",
    "value": "float64[N], the value of the state before the step: the sampler `restarts` records it (NaN where "
    "nothing was restarted), or the run's critic predicts it, for estimators that give it targets",
    "value_high": "float64[N], over subgoals: the run's critic predicts it at the end of the prompt",
    "value_low": "float64[N], within a subgoal: the run's critic predicts it after the subgoal",
}
"""The columns that estimators of this package may need, and where they come from. Others may have any name."""


def needs(*columns: str) -> Callable[[Estimator], Estimator]:
    """Mark an estimator: a batch without these columns is refused by name before it runs."""

    def mark(estimator: Estimator) -> Estimator:
        estimator.needs = columns  # type: ignore[attr-defined]
        return estimator

    return mark


def needed_by(estimator: Callable[..., Any]) -> tuple[str, ...]:
    """The columns that the estimator needs always; an option may ask for more."""
    return getattr(estimator, "needs", ())


def over_the_batch(estimator: Estimator) -> Estimator:
    """Mark an estimator whose advantages depend on all groups of the batch (it whitens, scales or counts over them)."""
    estimator.is_over_the_batch = True  # type: ignore[attr-defined]
    return estimator


def is_over_the_batch(estimator: Callable[..., Any]) -> bool:
    """Whether, by default options, other task groups of the batch change the advantages of this one."""
    return getattr(estimator, "is_over_the_batch", False)


def missing_column(column: str, name: str, kind: str = "Estimator") -> str:
    """The message where a batch lacks a column that the estimator of this name needs, or what else is named so."""
    described = COLUMNS.get(column, "a column of your own: pass it in extras={...}, one entry a step")
    return f"{kind} {name!r} needs the column {column!r}, which this batch does not have ({described})."
