"""Text environments. This package knows nothing of learning and needs no torch."""

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.registration import ENVIRONMENTS, register
from hgpo_gym.envs.vector import TextVectorEnv

__all__ = ["ENVIRONMENTS", "TextEnv", "TextVectorEnv", "Turn", "register"]
