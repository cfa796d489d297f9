"""hgpo_gym: multi-turn text environments for Gymnasium, and HGPO beside GRPO and GiGPO on them.

Importing the package registers the environment ids with Gymnasium, also those of installed packages that say so (see
`plugins`); where Gymnasium is not imported yet, as soon as it is. What needs less than all that imports less:
`hgpo_gym.advantages` loads neither Gymnasium nor torch, the environments and the memory load no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, register

__version__ = "0.1.0"
__all__ = ["TextEnv", "TextVectorEnv", "Turn", "__version__", "register"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("hgpo_gym.envs"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@wrapt.when_imported("gymnasium")
def _register_environments(_gymnasium: object) -> None:
    import_module("hgpo_gym.envs")
