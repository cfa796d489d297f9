"""Text environments. This package knows nothing of learning and needs no torch."""

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.registration import ENVIRONMENTS, register

__all__ = ["ENVIRONMENTS", "TextEnv", "Turn", "register"]
