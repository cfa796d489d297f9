"""Registries: what can be chosen by name, and the options that each choice has.

Whatever varies from run to run (estimators, objectives, samplers, shapings, learners, teams) is a function or a class
in a file of its own, and a line in a registry. Its options are its parameters, their defaults written there alone.
"""

import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from hgpo_gym.plugins import BrokenPluginWarning, describe_source
from hgpo_gym.source_code import is_defined_again
from hgpo_gym.suggest import unknown_name


class Choice(NamedTuple):
    """A choice by name, with the options that it is given."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})


class Registry(Mapping[str, Callable[..., Any]]):
    """Functions or classes by name: those of this package, those of installed packages, those that were registered.

    Args:
        kind: what one of them is called in messages, such as "estimator".
        builtin: those of this package; a string `"module:name"` is imported when it is first asked for.
        arguments: how many leading parameters are not options: what the caller passes by position.
        entry_points: the group in which installed packages name theirs.
    """

    def __init__(
        self, kind: str, builtin: Mapping[str, Callable[..., Any] | str], *, arguments: int, entry_points: str
    ):
        self.kind, self.arguments, self.group = kind, arguments, entry_points
        self._entries: dict[str, Callable[..., Any] | str | EntryPoint] = dict(builtin)
        self._builtin = frozenset(builtin)

    def register(self, name: str | Callable[..., Any], entry: Callable[..., Any] | None = None) -> Any:
        """Add a choice: `register(name, function)`, or as a decorator, `@register` (under the function's own name) and
        `@register(name)`. One that is defined again, as by a notebook's cell, replaces the one before.

        Raises:
            ValueError: the name is taken by something else.
        """
        if callable(name):
            self.register(name.__name__, name)
            return name
        if entry is None:
            return lambda decorated: (self.register(name, decorated), decorated)[1]
        there = self._all.get(name)
        if there is not None and (name in self._builtin or not is_defined_again(there, entry)):
            raise ValueError(f"The {self.kind} name {name!r} is taken by {_origin(there)}: choose another.")
        self._all[name] = entry
        return entry

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The choice of this name, imported if need be. Raises KeyError; `find` explains."""
        entry = self._all[name]
        if isinstance(entry, str):
            entry = self._all[name] = pkgutil.resolve_name(entry)
        elif isinstance(entry, EntryPoint):
            entry = self._all[name] = entry.load()
        return entry

    def __contains__(self, name: object) -> bool:
        """Whether there is such a choice; nothing is imported for that."""
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def find(self, name: str) -> Callable[..., Any]:
        """The choice of this name.

        Raises:
            ValueError: there is none; the message has the nearest names.
            ModuleNotFoundError: a package that it needs is missing.
        """
        if name not in self._all:
            raise ValueError(unknown_name(self.kind, name, self))
        return self[name]

    def options(self, name: str) -> dict[str, Parameter]:
        """The options of a choice: its parameters after the first `arguments`. Raises as `find` does."""
        parameters = list(inspect.signature(self.find(name)).parameters.values())[self.arguments :]
        return {
            parameter.name: parameter
            for parameter in parameters
            if parameter.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
        }

    def check_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check that there is such a choice, that it has these options, each of its kind (numbers finite, true no
        number), and that it is given those that it must have.

        Returns the options, NumPy's scalars as Python's.

        Raises:
            ValueError: names what is wrong.
        """
        known = self.options(name)
        takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in inspect.signature(self[name]).parameters.values())
        for option in options:
            if option not in known and not takes_any:
                raise ValueError(unknown_name(f"option of {name}", option, known))
        for option, parameter in known.items():
            if parameter.default is Parameter.empty and option not in options:
                raise ValueError(f"{self.kind} {name} needs the option {option}, which has no default.")
        kinds = _kinds(known)
        plain = {option: value.item() if isinstance(value, np.generic) else value for option, value in options.items()}
        for option, value in plain.items():
            if option in kinds:
                _check_kind(f"option {option} of {self.kind} {name}", value, kinds[option])
        return plain

    def bind(self, choice: Choice) -> Callable[..., Any]:
        """The function or class that was chosen, its options filled in. Raises as `check_options` does."""
        options = self.check_options(*choice)
        return partial(self[choice.name], **options)

    @cached_property
    def _all(self) -> dict[str, Callable[..., Any] | str | EntryPoint]:
        """With the entry points of installed packages, which are looked for when somebody first asks."""
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


_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "NoneType": "null",
    "Mapping": "a mapping, {a: 1}",
}


def _kinds(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """The annotations of those that take numbers, texts, true, false, null or one of a few words."""
    kinds = {name: parameter.annotation for name, parameter in parameters.items()}
    return {name: kind for name, kind in kinds.items() if all(map(_is_simple, _alternatives(kind)))}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_simple(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_simple(get_args(hint)[0])
    return get_origin(hint) in (Literal, Mapping) or hint in (float, int, str, bool, NoneType)


def _check_kind(what: str, value: Any, hint: Any) -> None:
    """Raise ValueError unless the value is of the kind of an annotation."""
    try:
        TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
    except ValidationError as error:
        words = [
            " or ".join(map(repr, get_args(kind))) if get_origin(kind) is Literal else _WORDS[kind.__name__]
            for kind in (get_args(one)[0] if get_origin(one) is Annotated else one for one in _alternatives(hint))
        ]
        reason = error.errors()[0]
        bound = f" ({reason['msg'].lower()})" if "ctx" in reason and "greater" in reason["type"] else ""
        raise ValueError(f"{what}: {value!r} cannot be: expected {' or '.join(words)}{bound}.") from None


def _origin(entry: Callable[..., Any] | str | EntryPoint) -> str:
    if isinstance(entry, str):
        return entry.partition(":")[0]
    return entry.value if isinstance(entry, EntryPoint) else entry.__module__
