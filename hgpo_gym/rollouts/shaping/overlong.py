"""Overlong: answers that come near the longest one are penalised."""

from dataclasses import replace

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.rollouts.rollout import Rollout


def overlong(rollout: Rollout, *, longest: int, buffer: int, factor: float = 1.0) -> StepBatch:
    """Soft overlong punishment (DAPO, arXiv 2503.14476, eq. 13; code: verl): an answer of n tokens takes

        max((n - (longest - buffer)) / buffer * factor, 0)

    off its step's reward, before an estimator compares episodes. HAPO's authors advise against it beside their
    objective.

    Args:
        longest: tokens of the longest answer.
        buffer: tokens before it, in which the penalty grows to `factor`.
        factor: the penalty of an answer that is cut off, in the environment's unit of reward.

    Raises:
        ValueError: buffer not in 1 to longest, factor below 0, or a policy that says nothing of its tokens.
    """
    if not 1 <= buffer <= longest:
        raise ValueError(f"shaping.buffer={buffer}: choose 1 to {longest} tokens, the longest answer.")
    if factor < 0:
        raise ValueError(f"shaping.factor={factor}: a penalty is 0 or more.")
    lengths = [None if record is None else len(record.token_ids) for record in rollout.tokens]
    if None in lengths:
        raise ValueError("shaping=overlong counts the tokens of answers, and this policy says nothing of them.")
    penalty = overlong_penalty(np.array(lengths, dtype=np.int64), longest, buffer, factor)
    return replace(rollout.batch, reward=rollout.batch.reward - penalty)


def overlong_penalty(lengths: np.ndarray, longest: int, buffer: int, factor: float) -> np.ndarray:
    """float64[N]: what answers of these lengths are penalised by."""
    return np.maximum((lengths - (longest - buffer)) / buffer * factor, 0.0)
