"""In order: all tasks equally often, and all their groups, episodes and steps."""

from hgpo_gym.rollouts.samplers.base import Sampler


class InOrder(Sampler):
    """Play shuffled epochs over all tasks, and learn from every episode and step.

    This is the baseline of the other samplers. Their first round plays the same tasks with the same seeds, unless they
    choose the tasks themselves.
    """
