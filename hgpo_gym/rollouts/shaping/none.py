"""No shaping: credit assignment sees the environment's rewards."""

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.rollouts.rollout import Rollout


def none(rollout: Rollout) -> StepBatch:
    """Return the rollout's batch unchanged."""
    return rollout.batch
