"""Code of others: installed packages that name their parts as entry points, and modules that a command is told of.

A package that brings environments names the module whose import registers them:

    [project.entry-points."hgpo_gym.envs"]
    my_game = "my_game"

Every registry (`hgpo_gym.registry`) has a group of its own, whose entries are the objects themselves.
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
"""What `load_plugins` has imported, in order; files by their whole path."""


class BrokenPluginWarning(UserWarning):
    """Something that an installed package brings cannot be used."""


def load_entry_points(group: str) -> None:
    """Import the modules that installed packages name in a group; what they register is then there.

    A module that cannot be imported is warned of, and what it would register is left out. So is a folder without
    code that has the package's name and is found in its place: the one around a package that is being worked on.
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
    """The distribution that an entry point belongs to."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def load_plugins(names: Iterable[str]) -> None:
    """Import each of these once: a Python file (`my_methods.py`, `folder/my_methods`) or a module by its dotted name.

    Raises:
        ImportError: nothing of that name, or its import fails; the message names it.
    """
    for name in names:
        file = Path(name if name.endswith(".py") else f"{name}.py").expanduser()
        try:
            place = str(file.resolve()) if file.is_file() else name
            module = _import_file(Path(place)) if file.is_file() else import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise ImportError(f"plugins: importing {name} failed: {error}") from error
            raise ImportError(
                f"plugins: there is neither a file {file} nor a module {name}. Name a Python file by its path."
            ) from error
        except Exception as error:
            raise ImportError(f"plugins: importing {name} failed with {type(error).__name__}: {error}") from error
        _loaded[place] = module


def loaded_plugins() -> tuple[str, ...]:
    """What another process has to `load_plugins` to know what this one does."""
    return tuple(place for place, module in _loaded.items() if sys.modules.get(module.__name__) is module)


def _import_file(file: Path) -> ModuleType:
    """The module in a file, under the file's own name, so that what it defines can be pickled."""
    name = file.stem
    there = sys.modules.get(name)
    if there is not None:
        if Path(getattr(there, "__file__", None) or "").resolve() == file:
            return there
        raise ImportError(f"{file} has the name of the module {name}, which is loaded: rename the file")
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
