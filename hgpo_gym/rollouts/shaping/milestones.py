"""Milestones: a reward for each subgoal that the environment reports."""

from dataclasses import replace

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.rollouts.rollout import Rollout


@needs("milestone")
def milestones(rollout: Rollout, *, milestone_reward: float = 10.0) -> StepBatch:
    """Add m to the reward of each step that reached a milestone.

    The estimator beacon reads milestones itself; this gives them to any other estimator.

    Args:
        milestone_reward: m, in the environment's unit of reward.
    """
    batch = rollout.batch
    reached = batch.column("milestone", "milestones", "Shaping")
    return replace(batch, reward=batch.reward + milestone_reward * reached)
