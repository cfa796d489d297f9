"""hgpo_gym: multi-turn text environments for Gymnasium, and HGPO beside GRPO and GiGPO on them.

Importing the package registers its environment ids with Gymnasium, and those of installed plugins (see `plugins`). If
Gymnasium is not imported yet, this happens when it is. A part of the package imports only what it needs:
`hgpo_gym.advantages` loads neither Gymnasium nor torch, and the environments and the memory load no torch.

The public names are in `__init__.pyi`. Each is imported at its first use, so that torch loads only if it is needed.
"""

from importlib import import_module

import lazy_loader
import wrapt

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


@wrapt.when_imported("gymnasium")
def _register_environments(_gymnasium: object) -> None:
    import_module("hgpo_gym.envs")
