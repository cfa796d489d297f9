"""hgpo_gym: multi-turn text environments for Gymnasium, and HGPO beside GRPO and GiGPO on them.

Importing the package registers the environment ids, also those of installed packages that say so (see `envs.plugins`).
The environments and the memory need no torch; the trainers are in `hgpo_gym.trainers` and need the extra `train`.
"""

from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, register
from hgpo_gym.envs.plugins import load_plugins

__version__ = "0.1.0"
__all__ = ["TextEnv", "TextVectorEnv", "Turn", "__version__", "register"]

load_plugins()
