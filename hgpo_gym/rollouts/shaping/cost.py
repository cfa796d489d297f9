"""Cost: some actions have a price."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.rollouts.rollout import Rollout


def cost(rollout: Rollout, *, costs: Mapping[str, float]) -> StepBatch:
    """Takes the price of every pattern that the step's action matches off its reward: reward -= sum_k c_k [matches k].
    The general form of ESearch-R1's and HILA's (arXiv 2603.07972) prices of asking, which are not public in full.

    Unlike a penalty it is part of the return, so that it counts for the steps before, too. What a role of a team says
    has its price like an action.

    Args:
        costs: a regular expression that the whole action has to match, and its price.

    Raises:
        ValueError: a pattern that is no regular expression.

    A pattern that matches no action of the rollout is warned of.
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
