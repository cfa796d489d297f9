"""Learners: the part of a run that collects and trains. `LEARNERS` has them by name: `learner=` on the command line."""

from hgpo_gym.registry import Registry
from hgpo_gym.runs.checkpoints import Saving
from hgpo_gym.trainers.learners.base import Learned, Learner

LEARNERS = Registry(
    "learner",
    {
        "policy_gradient": "hgpo_gym.trainers.learners.policy_gradient:PolicyGradientLearner",
        "sb3": "hgpo_gym.trainers.learners.sb3.learner:Sb3Learner",
    },
    arguments=3,
    entry_points="hgpo_gym.learners",
)
"""Classes that are constructed with (run settings, processes, progress) and their options."""
register_learner = LEARNERS.register

__all__ = ["LEARNERS", "Learned", "Learner", "Saving", "register_learner"]
