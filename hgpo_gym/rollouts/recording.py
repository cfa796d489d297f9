"""Columns that estimators need beyond those of every rollout."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout

OF_A_STEP = ("milestone", "tag", "tag_reward", "turn_reward")
"""Columns that `collect` records on request, from the environment's info after a step."""

ENTROPY = "entropy"
"""The column that the policy computes before its update."""

REWARD_VECTOR = "reward_vector"

REWARDS = ("success", "return", "length", "validity")
"""The rewards of an episode that `reward_vector` can hold."""


def with_reward_vector(rollout: Rollout, rewards: Sequence[str], step_limit: int) -> Rollout:
    """Return the rollout with the column `reward_vector` float64[N, m]: the named rewards of a row's episode.

    Args:
        rewards: names in `REWARDS`.
        step_limit: of an episode.
    """
    by_episode = [[rewards_of(episode, step_limit)[name] for name in rewards] for episode in rollout.episodes]
    vector = np.array(by_episode, dtype=np.float64).reshape(-1, len(rewards))
    return with_extra(rollout, REWARD_VECTOR, vector[rollout.batch.trajectory])


def with_extra(rollout: Rollout, name: str, values: np.ndarray) -> Rollout:
    """Return the rollout with one more column in its batch's extras, one entry per row."""
    extras = {**rollout.batch.extras, name: values}
    return replace(rollout, batch=replace(rollout.batch, extras=extras))


def rewards_of(episode: EpisodeOutcome, step_limit: int) -> dict[str, float]:
    """Return all `REWARDS` of an episode."""
    return {
        "success": float(episode.won),
        "return": episode.episode_return,
        "length": episode.won * (1 - episode.steps / step_limit),
        "validity": episode.valid_steps / max(1, episode.steps),
    }
