"""Checks of options by the annotations of the signature that declares them."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from hgpo_gym.suggest import unknown_name


class Range(NamedTuple):
    """The lowest and highest allowed number: `Annotated[int, Range(1, 6)]`."""

    low: float
    high: float = math.inf

    def check(self, name: str, value: float) -> None:
        if not self.low <= value <= self.high:
            limits = f"choose {self.low:,} to {self.high:,}" if self.high < math.inf else f"must be at least {self.low}"
            raise ValueError(f"{name}={value}: {limits}.")


class OneOf(NamedTuple):
    """The allowed names, such as the keys of a table: `Annotated[str, OneOf(TABLE)]`."""

    names: Iterable[str]

    def check(self, name: str, value: str) -> None:
        if value not in self.names:
            raise ValueError(unknown_name(name, value, self.names))


AtLeastOne = Annotated[int, Range(1)]

_WORDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
    Path: "a path",
    os.PathLike: "a path",
    Sequence: "a list, [a, b]",
    Mapping: "a mapping, {a: 1}",
}


def check_option(name: str, value: Any, annotation: Any, of: str = "") -> None:
    """Check an option's value.

    The types of `_WORDS`, literals, `Range`, `OneOf` and unions are checked. Other annotations allow any value.

    Args:
        name: the option's.
        value: the option's.
        annotation: as the signature has it, not as a string.
        of: what the option belongs to, for the message.

    Raises:
        ValueError: the value breaks the annotation.
    """
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Literal and isinstance(value, str):
        OneOf(parts).check(name, value)
    if not _fits(value, annotation):
        words = dict.fromkeys(_described(alternative) for alternative in _alternatives(annotation))
        raise ValueError(f"{name}={value!r}{of and f' ({of})'}: expected {' or '.join(words)}.")
    if kind is Annotated:
        for check in annotation.__metadata__:
            if isinstance(check, Range | OneOf):
                check.check(name, value)


def _fits(value: Any, annotation: Any) -> bool:
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Annotated:
        return _fits(value, parts[0])
    if kind is Literal:
        return value in parts
    # A bool is an int in Python.
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if kind is Sequence:
        return isinstance(value, Sequence) and all(_fits(entry, part) for part in parts for entry in value)
    return kind not in _WORDS or isinstance(value, kind)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _described(annotation: Any) -> str:
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Annotated:
        return _described(parts[0])
    if kind is Literal:
        return " or ".join(map(repr, parts))
    return _WORDS.get(kind, str(annotation))
