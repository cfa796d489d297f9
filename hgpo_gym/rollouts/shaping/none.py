"""No shaping: credit assignment sees the environment's rewards."""

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.rollouts.rollout import Rollout


def none(rollout: Rollout) -> StepBatch:
    """The rewards and penalties as they are."""
    return rollout.batch
