"""Plans in rollouts: their columns, counted in tokens, and their metrics."""

from dataclasses import replace
from typing import Any

import numpy as np

from hgpo_gym.rollouts.rollout import Rollout

PLAN_COLUMNS = ("boundary", "switch_tokens", "plan_tokens", "response_tokens")
"""Columns that a run records where responses have a plan."""


def with_plan_tokens(rollout: Rollout, policy: Any) -> Rollout:
    """Return the rollout with `PLAN_COLUMNS`, which count tokens in place of characters, int64[N].

    They count the tokens of the switch, of switch and subgoal, and of the whole response.

    Raises:
        ValueError: the policy's responses are not texts of several tokens.
    """
    if not hasattr(policy, "tokens_within"):
        raise ValueError(f"prompt.subgoals: responses with a plan need a language model, not {type(policy).__name__}.")
    extras = dict(rollout.batch.extras)
    ends = {"switch_tokens": extras.pop("switch_end"), "plan_tokens": extras.pop("plan_end")}
    records: list[Any] = list(rollout.tokens)
    for name, characters in ends.items():
        counts = [policy.tokens_within(record, end) for record, end in zip(records, characters.tolist(), strict=True)]
        extras[name] = np.array(counts, dtype=np.int64)
    extras["response_tokens"] = np.array([len(record.token_ids) for record in records], dtype=np.int64)
    return replace(rollout, batch=replace(rollout.batch, extras=extras))


def plan_metrics(extras: Any) -> dict[str, float]:
    """Return the share of steps that switch the subgoal, and of well-formed plans; empty without plans."""
    if "plan_tokens" not in extras:
        return {}
    return {
        "switch_share": float(np.mean(extras["boundary"])),
        "plan_in_form_share": float(np.mean(extras["plan_tokens"] > 0)),
    }
