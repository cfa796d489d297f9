"""In order: every task as often as any other, every group, every episode, every step."""

from hgpo_gym.rollouts.samplers.base import Sampler


class InOrder(Sampler):
    """Goes through all tasks in a shuffled order, again and again, and learns from everything that was played.

    What other samplers are compared with: the first round of theirs plays the same tasks with the same random numbers,
    unless they choose tasks of their own.
    """
