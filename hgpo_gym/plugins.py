"""Code from outside the package: entry points of installed packages, and modules that a command names.

A package with environments names the module that registers them on import:

    [project.entry-points."hgpo_gym.envs"]
    my_game = "my_game"

Every registry (`hgpo_gym.registry`) has its own group, whose entries are the objects themselves.
"""

import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_loaded: dict[str, ModuleType] = {}
"""The modules that `load_plugins` has imported, in order. The key of a file is its absolute path."""


class BrokenPluginWarning(UserWarning):
    """An entry point of an installed package cannot be used."""


def load_entry_points(group: str) -> None:
    """Import the modules that installed packages name in a group, so that they can register their parts.

    A module that cannot be imported is skipped with a warning. So is a folder without code that has the package's name
    and is found first: the folder around a package under development.
    """
    for entry in sorted(entry_points(group=group)):
        try:
            found = entry.load()
            if isinstance(found, ModuleType) and found.__file__ is None:
                raise ImportError(
                    f"the folder {next(iter(found.__path__))}, which is no package, is found in its place. Work in "
                    "another folder, such as that one"
                )
        except Exception as error:  # noqa: BLE001 - the code of strangers: whatever is wrong there, the rest goes on
            warnings.warn(
                f"{describe_source(entry)} is left out of {group}, because importing {entry.value!r} failed with "
                f"{type(error).__name__}: {error}",
                BrokenPluginWarning,
                stacklevel=3,
            )


def describe_source(entry: EntryPoint) -> str:
    """Return the name and version of the distribution that an entry point belongs to."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def load_plugins(names: Iterable[str]) -> None:
    """Import each plugin once: a Python file (`my_methods.py`, `folder/my_methods`) or a module by its dotted name.

    Raises:
        ImportError: nothing of that name, or its import fails; the message names it.
    """
    for name in names:
        file = Path(name if name.endswith(".py") else f"{name}.py")
        try:
            file = file.expanduser()
            source = str(file.resolve()) if file.is_file() else name
            module = _import_file(Path(source)) if file.is_file() else import_module(name)
        except ModuleNotFoundError as error:
            # A missing module that the plugin imports is another mistake than a missing plugin.
            if error.name != name.partition(".")[0]:
                raise ImportError(f"plugins: importing {name} failed: {error}") from error
            raise ImportError(
                f"plugins: there is neither a file {file} nor a module {name}. Name a Python file by its path."
            ) from error
        except (Exception, SystemExit) as error:  # a plugin that exits would end the command without a word
            raise ImportError(f"plugins: importing {name} failed with {type(error).__name__}: {error}") from error
        _loaded[source] = module


def loaded_plugins() -> tuple[str, ...]:
    """Return the names that another process must pass to `load_plugins` to have the same plugins."""
    return tuple(source for source, module in _loaded.items() if sys.modules.get(module.__name__) is module)


def _import_file(file: Path) -> ModuleType:
    """Import a file as a module named after the file, so that pickle finds its definitions."""
    name = file.stem
    existing = sys.modules.get(name)
    if existing is not None:
        if Path(getattr(existing, "__file__", None) or "").resolve() == file:
            return existing
        raise ImportError(f"{file} has the name of the module {name}, which is loaded: rename the file")
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Before the code runs, as importlib does: dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
