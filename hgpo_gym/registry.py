"""Registries: named choices and the options of each.

Each estimator, objective, correction, sampler, shaping, learner and team is a function or class. Its options are its
parameters. Their defaults are written only there, and `Args:` in its docstring explains them.
"""

import inspect
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hgpo_gym.option_checks import check_option
from hgpo_gym.plugins import BrokenPluginWarning, describe_source
from hgpo_gym.source_code import is_defined_again
from hgpo_gym.suggest import unknown_name

Entry = TypeVar("Entry", bound=Callable[..., Any])


class Choice(NamedTuple):
    """A choice by name, with its options."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})


def explained_arguments(entry: Callable[..., Any]) -> dict[str, str]:
    """Return the explanation of each argument in the section `Args:` of a docstring, as one line. A class has those of
    its bases, too."""
    inherited: dict[str, str] = {}
    for base in reversed(entry.__bases__ if isinstance(entry, type) else ()):
        inherited |= explained_arguments(base)
    _, _, section = inspect.cleandoc(entry.__doc__ or "").partition("\nArgs:\n")
    # The section ends at the first line that is not indented.
    section = re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0]
    arguments = re.findall(r"^    (\w+): (.*\n?(?:^     +\S.*\n?)*)", section, re.MULTILINE)
    return inherited | {name: " ".join(text.split()) for name, text in arguments}


def follows(**settings: str) -> Callable[[Entry], Entry]:
    """Mark a function or class with options whose default is another setting, `longest="rollout.max_new_tokens"`."""

    def mark(entry: Entry) -> Entry:
        entry.follows = settings  # type: ignore[attr-defined]
        return entry

    return mark


class Registry(Mapping[str, Callable[..., Any]]):
    """Functions or classes by name: built in, from installed packages, or registered at run time.

    Args:
        kind: the noun in messages, such as "estimator".
        builtin: the choices of this package; a string `"module:name"` is imported at its first use.
        arguments: the number of leading parameters that the caller passes by position, which are not options.
        entry_points: the group in which installed packages name their choices.
    """

    def __init__(
        self, kind: str, builtin: Mapping[str, Callable[..., Any] | str], *, arguments: int, entry_points: str
    ):
        self.kind, self.arguments, self.group = kind, arguments, entry_points
        self._entries: dict[str, Callable[..., Any] | str | EntryPoint] = dict(builtin)
        self._builtin = frozenset(builtin)

    def register(self, name: str | Callable[..., Any], entry: Callable[..., Any] | None = None) -> Any:
        """Add a choice: `register(name, function)`, or as a decorator, `@register` (uses the function's name) or
        `@register(name)`. A definition that is run again, as in a notebook's cell, replaces the earlier one.

        Raises:
            ValueError: something else has the name.
        """
        if callable(name):
            self.register(name.__name__, name)
            return name
        if entry is None:
            return lambda decorated: (self.register(name, decorated), decorated)[1]
        existing = self._all.get(name)
        if existing is not None and (name in self._builtin or not is_defined_again(existing, entry)):
            raise ValueError(f"The {self.kind} name {name!r} is taken by {_origin(existing)}: choose another.")
        self._all[name] = entry
        return entry

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the choice of this name, after importing it if necessary. Raises KeyError; `find` explains."""
        entry = self._all[name]
        if isinstance(entry, str):
            entry = self._all[name] = pkgutil.resolve_name(entry)
        elif isinstance(entry, EntryPoint):
            entry = self._all[name] = entry.load()
        return entry

    def __contains__(self, name: object) -> bool:
        """Return True if there is such a choice, without importing it."""
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def find(self, name: str) -> Callable[..., Any]:
        """Return the choice of this name.

        Raises:
            ValueError: there is none; the message has the nearest names.
            ModuleNotFoundError: a package that it needs is missing.
        """
        if name not in self._all:
            raise ValueError(unknown_name(self.kind, name, self))
        return self[name]

    def options(self, name: str) -> dict[str, Parameter]:
        """Return the options of a choice: its parameters after the first `arguments`. Raises as `find` does."""
        parameters = list(_signature(self.find(name)).parameters.values())[self.arguments :]
        return {
            parameter.name: parameter
            for parameter in parameters
            if parameter.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
        }

    def summary(self, name: str) -> str:
        """Return the first paragraph of a choice's docstring, as one line. Raises as `find` does."""
        return " ".join((inspect.getdoc(self.find(name)) or "").partition("\n\n")[0].split())

    def meanings(self, name: str) -> dict[str, str]:
        """Return what each option of a choice means, by its docstring. Raises as `find` does."""
        meanings = explained_arguments(self.find(name))
        return {option: meanings[option] for option in self.options(name) if option in meanings}

    def check_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check that the choice exists, has these options, and gets all that it requires. Values must fit the
        annotations: finite numbers, and no booleans as numbers.

        Returns the options, with NumPy's scalars as Python's.

        Raises:
            ValueError: names the mistake.
        """
        parameters = self.options(name)
        takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in _signature(self[name]).parameters.values())
        for option in options:
            if option not in parameters and not takes_any:
                raise ValueError(unknown_name(f"option of {name}", option, parameters))
        for option, parameter in parameters.items():
            if parameter.default is Parameter.empty and option not in options:
                raise ValueError(f"{self.kind} {name} needs the option {option}, which has no default.")
        plain = {option: value.item() if isinstance(value, np.generic) else value for option, value in options.items()}
        for option in plain.keys() & parameters.keys():
            check_option(option, plain[option], parameters[option].annotation, f"option of {self.kind} {name}")
        return plain

    def bind(self, choice: Choice) -> Callable[..., Any]:
        """Return the chosen function or class with its options filled in. Raises as `check_options` does."""
        options = self.check_options(*choice)
        return partial(self[choice.name], **options)

    @cached_property
    def _all(self) -> dict[str, Callable[..., Any] | str | EntryPoint]:
        """All choices. The entry points of installed packages are looked up at the first use."""
        for entry in sorted(entry_points(group=self.group)):
            if entry.name in self._entries:
                warnings.warn(
                    f"The {self.kind} {entry.name!r} of {describe_source(entry)} is left out: the name is taken by "
                    f"{_origin(self._entries[entry.name])}.",
                    BrokenPluginWarning,
                    stacklevel=3,
                )
            else:
                self._entries[entry.name] = entry
        return self._entries


def one_a_file(package: str, *, classes: bool = False) -> dict[str, str]:
    """Return the built-in choices of a package whose files each define the choice of the file's name, or with
    `classes` the class of that name, such as `BestPlan` in `best_plan.py`. Files with a leading underscore define none.
    No file is imported before its choice is used."""
    names = sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__))
    return {
        name: f"{package}.{name}:{name.title().replace('_', '') if classes else name}"
        for name in names
        if not name.startswith("_")
    }


@lru_cache(maxsize=1 << 10)
def _signature(entry: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(entry)


def _origin(entry: Callable[..., Any] | str | EntryPoint) -> str:
    if isinstance(entry, str):
        return entry.partition(":")[0]
    return entry.value if isinstance(entry, EntryPoint) else entry.__module__
