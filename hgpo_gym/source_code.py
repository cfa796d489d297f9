"""Digests of the source of classes and functions, which show that code has changed."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = __name__.partition(".")[0]
Definition = Callable[..., Any] | str | EntryPoint
"""A function or class, or its place: `module:name`."""


def is_ours(component: Callable[..., Any]) -> bool:
    """Return True for a class or function of this package."""
    return _module_name(component).partition(".")[0] == OURS


def place_of(component: Callable[..., Any]) -> str:
    """Return the package or file that defines a class or function; `notebook` if it is in no file."""
    module = sys.modules.get(_module_name(component))
    if (file := _file(module)) is None:
        return "notebook"
    return package if (package := getattr(module, "__package__", None)) else file.name


def source_of(component: Callable[..., Any]) -> str:
    """Return a digest of the code that a class or function may depend on.

    That is its file or, in a package, all Python files of the package; in this package, those of the same subpackage.
    For a definition in a notebook it is the source itself.
    """
    module = sys.modules.get(_module_name(component))
    if (file := _file(module)) is None:
        try:
            return inspect.getsource(component)
        except (OSError, TypeError):
            return repr(component)
    if not getattr(module, "__package__", None):
        return files_digest([file])
    return files_digest(_python_files(file.parent if is_ours(component) else _package_folder(file)))


def is_defined_again(before: Definition, now: Definition) -> bool:
    """Return True if both definitions have the same module and name: the new one then replaces the old one. A partial
    counts as its function, another object as its class."""
    return _definition_place(before) == _definition_place(now)


def _definition_place(entry: Definition) -> tuple[str, str]:
    while isinstance(entry, functools.partial):
        entry = entry.func
    if isinstance(entry, EntryPoint):
        entry = entry.value
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        return module, name
    definition = entry if hasattr(entry, "__qualname__") else type(entry)
    return definition.__module__, definition.__qualname__


def files_digest(files: Iterable[Path]) -> str:
    """Return a digest of the files' contents, independent of their order and folders."""
    digests = sorted(sha256(file.read_bytes()).hexdigest() for file in files)
    return sha256("".join(digests).encode()).hexdigest()


def _module_name(component: Callable[..., Any]) -> str:
    while isinstance(component, functools.partial):
        component = component.func
    return getattr(component, "__module__", None) or ""


def _file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def _package_folder(file: Path) -> Path:
    """Return the outermost package around a file. A folder without `__init__.py` is no package, since other files share
    it."""
    folder = file.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _python_files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]  # a virtual environment, for example
        yield from (Path(root, name) for name in names if name.endswith(".py"))
