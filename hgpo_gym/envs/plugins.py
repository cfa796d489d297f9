"""Environments of installed packages, found through the entry points of the group `hgpo_gym.envs`.

A package names there the module whose import registers its environments:

    [project.entry-points."hgpo_gym.envs"]
    my_game = "my_game"
"""

import warnings
from importlib.metadata import entry_points

GROUP = "hgpo_gym.envs"


class BrokenPluginWarning(UserWarning):
    """An installed package's environments cannot be used."""


def load_plugins() -> None:
    """Import the modules that installed packages name; their `register` lines do the rest.

    A module that cannot be imported is warned of, and its environments are not there.
    """
    for entry in sorted(entry_points(group=GROUP)):
        try:
            entry.load()
        except Exception as error:  # noqa: BLE001 - the code of strangers: whatever is wrong there, the rest goes on
            distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
            warnings.warn(
                f"{distribution}: its environments are left out, because importing {entry.value!r} failed with "
                f"{type(error).__name__}: {error}",
                BrokenPluginWarning,
                stacklevel=3,
            )
