"""Text environments. This package knows nothing of learning and needs no torch."""

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.checker import check_text_env
from hgpo_gym.envs.from_discrete import DiscreteTask, TextFromDiscrete
from hgpo_gym.envs.registration import ENVIRONMENTS, make, make_vec, register
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.envs.wrappers import DiscreteActions, HashedText, TokenIds
from hgpo_gym.plugins import load_entry_points

__all__ = [
    "ENVIRONMENTS",
    "DiscreteActions",
    "DiscreteTask",
    "HashedText",
    "TextEnv",
    "TextFromDiscrete",
    "TextVectorEnv",
    "TokenIds",
    "Turn",
    "check_text_env",
    "make",
    "make_vec",
    "register",
]

load_entry_points("hgpo_gym.envs")
