"""Milestones: the environment says which steps bring the task to its next subgoal, and each is paid."""

from dataclasses import replace

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.rollouts.rollout import Rollout


@needs("milestone")
def milestones(rollout: Rollout, *, milestone_reward: float = 10.0) -> StepBatch:
    """reward += m [the step reached a milestone]: what the estimator beacon is told, for any other that reads rewards.

    Args:
        milestone_reward: m, in the environment's unit of reward.
    """
    batch = rollout.batch
    reached = batch.column("milestone", "milestones", "Shaping")
    return replace(batch, reward=batch.reward + milestone_reward * reached)
