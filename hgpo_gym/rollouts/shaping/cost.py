"""Cost: a price for some actions."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.rollouts.rollout import Rollout


def cost(rollout: Rollout, *, costs: Mapping[str, float]) -> StepBatch:
    """Subtract prices from the reward of matching actions: reward -= sum_k c_k [action matches pattern k].

    This generalises the prices of asking in ESearch-R1 and HILA (arXiv 2603.07972), which are not public in full.
    Unlike a penalty, a price is part of the return, so it also counts for earlier steps. Messages of a team's roles
    have prices like actions.

    Args:
        costs: regular expressions that must match the whole action, each with its price.

    Raises:
        ValueError: a pattern is not a regular expression.

    Warns if a pattern matches no action of the rollout.
    """
    prices = np.zeros(len(rollout.steps))
    for pattern, price in costs.items():
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            raise ValueError(f"shaping.costs: {pattern!r} is no regular expression: {error}.") from error
        matched = np.array([matches(step.action) is not None for step in rollout.steps], dtype=np.bool_)
        if not matched.any():
            warnings.warn(f"shaping=cost: no action of a rollout matches {pattern!r}, which has a price.", stacklevel=2)
        prices += price * matched
    return replace(rollout.batch, reward=rollout.batch.reward - prices)
