"""Hierarchical advantages over the segments of a plan."""

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import learns_values, needs, over_the_batch
from hgpo_gym.advantages.result import Advantages
from hgpo_gym.advantages.statistics import check_shares, later_in_sequence
from hgpo_gym.advantages.statistics import whiten as whitened
from hgpo_gym.suggest import unknown_name

PARTS = ("both", "low", "high")

TOKENS = ("switch_tokens", "plan_tokens", "response_tokens")
"""Token counts of a response: its switch, its switch and subgoal, and the whole."""


@needs("value_low", "value_high", "boundary")
@learns_values
@over_the_batch
def hiper_hae(
    batch: StepBatch,
    *,
    part: str = "both",
    gamma: float = 1.0,
    trace_decay: float = 1.0,
    segment_decay: float = 0.95,
    bootstrap_truncated: bool = False,
    whiten: bool = True,
) -> Advantages:
    """Hierarchical advantage estimation (HiPER, ICML 2026, arXiv:2602.16165).

    Generalized advantages of the actions inside a subgoal's segment (low), and of the segments (high). A segment starts
    at the first step and at each `boundary`.

        low:   delta = r + gamma v' - value_low,   A = delta + gamma trace_decay A' inside the segment, where v' is the
               next step's value_low, and after the segment's last step value_high of the next segment
        high:  delta = sum_j gamma^j r_j + gamma^d value_high(next segment) - value_high(its own first step),
               A = delta + gamma^d segment_decay A(next segment), on the first of a segment's d steps, 0 on the others

    with r the reward minus the step's penalty, and values of 0 after the episode. Low is for action tokens. High is for
    the tokens of a new subgoal. The critics' targets are A + value before whitening. The paper also has penalties for
    keeping a subgoal, which are part of the rewards. Family: rewards with a critic. Source: code (JonP07/HiPER-agent,
    which whitens with n).

    It needs a prompt with subgoals, `prompt=plan`. Subgoals that change at every step make low and high the same.

    Args:
        batch: the steps, with the columns `value_low`, `value_high` and `boundary`.
        part: `low` or `high` gives one number per step. `both` gives low per step, and token advantages: high on the
            tokens of a new subgoal, 0 on other tokens before the action, and low on the action. It needs the columns
            `switch_tokens`, `plan_tokens` and `response_tokens`.
        gamma: discount.
        trace_decay: lambda inside a segment.
        segment_decay: lambda from segment to segment.
        bootstrap_truncated: after an episode that the step limit ended (column `truncated`), use the value of its last
            step and last segment in place of 0 (the authors: true for ALFWorld, false for WebShop).
        whiten: scale to mean 0 and deviation 1, over all steps (low) or the first steps of segments (high).

    Returns the values float64[N], with `both` also token advantages, and the targets of the critics. Targets of
    `value_high` are NaN except at the start of a segment. Raises ValueError on an unknown `part`, a number outside
    [0, 1], or a missing column.
    """
    if part not in PARTS:
        raise ValueError(unknown_name("part", part, PARTS))
    check_shares(gamma=gamma, trace_decay=trace_decay, segment_decay=segment_decay)
    low, high = batch.column("value_low", "hiper_hae"), batch.column("value_high", "hiper_hae")
    bootstraps = np.zeros(len(batch), dtype=np.bool_)
    if bootstrap_truncated:
        bootstraps = batch.column("truncated", "hiper_hae").astype(np.bool_)

    # From here on rows are ordered episode after episode; segments are numbered across all episodes.
    order = batch.in_order
    begins = (batch.step[order] == 0) | batch.column("boundary", "hiper_hae").astype(np.bool_)[order]
    segment = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    place = np.arange(len(order)) - first[segment]
    reward = (batch.reward - batch.penalty)[order]
    low, high, bootstraps = low[order], high[order], bootstraps[order]
    copies = None if batch.copies is None else batch.copies[order]
    advantages = dict.fromkeys(("low", "high"), np.zeros(0))
    targets = {}
    if part != "high":
        following = _next(np.where(begins, high, low), batch.step[order] == 0, np.where(bootstraps, low, 0.0))
        differences = reward + gamma * following - low
        decay = gamma * trace_decay
        value = differences + decay * later_in_sequence(differences, segment, place, decay)
        advantages["low"] = _placed(whitened(value, copies) if whiten else value, order, len(batch), 0.0)
        targets["value_low"] = _placed(value + low, order, len(batch), 0.0)
    if part != "low":
        earned = (reward + gamma * later_in_sequence(reward, segment, place, gamma))[first]
        discount = gamma ** np.bincount(segment)
        segment_value = high[first]
        following = _next(segment_value, batch.step[order[first]] == 0, np.where(bootstraps[first], segment_value, 0.0))
        differences = earned + discount * following - segment_value
        value = _decayed(differences, discount * segment_decay, batch.step[order[first]] == 0)
        begun = None if copies is None else copies[first]
        advantages["high"] = _placed(whitened(value, begun) if whiten else value, order[first], len(batch), 0.0)
        targets["value_high"] = _placed(value + segment_value, order[first], len(batch), np.nan)
    if part != "both":
        return Advantages(advantages[part], targets=targets)
    return Advantages(
        advantages["low"], tokens=_of_tokens(batch, advantages["high"], advantages["low"]), targets=targets
    )


def _of_tokens(batch: StepBatch, subgoal: np.ndarray, action: np.ndarray) -> list[np.ndarray]:
    """Return token advantages of each response: 0 on its switch, then the subgoal's, then the action's."""
    switch, plan, response = (batch.column(name, "hiper_hae").astype(np.int64) for name in TOKENS)
    lengths = np.column_stack([switch, plan - switch, response - plan])
    tokens = np.repeat(np.column_stack([np.zeros(len(batch)), subgoal, action]).ravel(), lengths.ravel())
    stops = np.cumsum(response)
    return [tokens[start:stop] for start, stop in zip((stops - response).tolist(), stops.tolist(), strict=True)]


def _placed(values: np.ndarray, rows: np.ndarray, count: int, elsewhere: float) -> np.ndarray:
    """Return float64[count] with the values at their rows, and `elsewhere` at the others."""
    placed = np.full(count, elsewhere)
    placed[rows] = values
    return placed


def _next(values: np.ndarray, starts: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the next value in the episode, `end` at its last place. `starts` marks first places."""
    last = np.append(starts[1:], True)[: len(values)]
    return np.where(last, end, np.append(values[1:], 0.0)[: len(values)])


def _decayed(differences: np.ndarray, decay: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return A = delta + decay * A(next place of the episode), computed backwards."""
    result = differences.copy()
    for place in range(len(result) - 2, -1, -1):
        if not starts[place + 1]:
            result[place] += decay[place] * result[place + 1]
    return result
