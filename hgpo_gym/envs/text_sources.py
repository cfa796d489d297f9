"""What an environment's texts depend on, for the keys of what is kept of them: recorded episodes, models made of these.

Where any of it changes, what was kept is not taken again but made anew.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hgpo_gym.envs.base import TextEnv
from hgpo_gym.envs.making import creator, option_parameters
from hgpo_gym.files import content_key


def texts_key(kind: type, id: str, options: Mapping[str, Any], own_key: str) -> str:
    """16 hexadecimal digits for the texts of a registered environment that was made with these options.

    They change with its id (the version is part of it), its options, and the source of its class and of the bases of
    that, each with all Python files of its package. They are the same on every machine: of a file that an option names
    the content counts, of a folder nothing, for whose content task ids or the environment's own key must speak.

    Args:
        kind: its class.
        id: as registered.
        options: that it was made with.
        own_key: its `TextEnv.texts_key`.
    """
    sources = {_source(base) for base in kind.__mro__ if issubclass(base, TextEnv)} | {_source(creator(id))}
    places = {name for name, parameter in option_parameters(id).items() if "Path" in str(parameter.annotation)}
    given = {name: _content(value) if name in places else value for name, value in options.items()}
    return content_key([id, given, sorted(sources), own_key])


def _source(thing: Callable[..., Any]) -> str:
    """A digest of the file where a class or function is written, and of the rest of the package that this is in: what
    it says may stand in its neighbours. Of what was typed into a notebook, its own lines count."""
    module = sys.modules.get(getattr(thing, "__module__", ""))
    file = getattr(module, "__file__", None)
    if file is None:
        try:
            return inspect.getsource(thing)
        except (OSError, TypeError):
            return repr(thing)
    return _digest(_python_files(Path(file).parent) if getattr(module, "__package__", None) else [Path(file)])


def _content(value: Any) -> Any:
    """An option that is a place, or several, by what is there."""
    if isinstance(value, str | os.PathLike):
        place = Path(value).expanduser()
        return _digest([place]) if place.is_file() else None
    return list(map(_content, value)) if isinstance(value, Iterable) else value


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]  # a virtual environment, for example
        yield from (Path(place, name) for name in names if name.endswith(".py"))


def _digest(files: Iterable[Path]) -> str:
    """Of the content of files, whatever their order and folders."""
    digests = sorted(sha256(file.read_bytes()).hexdigest() for file in files)
    return sha256("".join(digests).encode()).hexdigest()
