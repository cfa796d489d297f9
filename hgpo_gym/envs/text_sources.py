"""What an environment's texts depend on, for the keys of what is kept of them: recorded episodes, models made of these.

Where any of it changes, what was kept is not taken again but made anew.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hgpo_gym.envs.base import TextEnv
from hgpo_gym.envs.making import creator, option_parameters
from hgpo_gym.files import content_key
from hgpo_gym.source_code import files_digest, source_of


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
    sources = {source_of(base) for base in kind.__mro__ if issubclass(base, TextEnv)} | {source_of(creator(id))}
    places = {name for name, parameter in option_parameters(id).items() if "Path" in str(parameter.annotation)}
    given = {name: _content(value) if name in places else value for name, value in options.items()}
    return content_key([id, given, sorted(sources), own_key])


def _content(value: Any) -> Any:
    """An option that is a place, or several, by what is there."""
    if isinstance(value, str | os.PathLike):
        place = Path(value).expanduser()
        return files_digest([place]) if place.is_file() else None
    return list(map(_content, value)) if isinstance(value, Iterable) else value
