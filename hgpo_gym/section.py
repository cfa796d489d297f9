"""Base of configuration sections: typed records, with mistakes described in the user's terms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hgpo_gym.suggest import unknown_name


class SettingsSection(BaseModel):
    """An immutable, strictly typed section: 1 is not accepted as true, nor "1" as a number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )


SectionT = TypeVar("SectionT", bound=BaseModel)


def one_of(names: Iterable[str]) -> Callable[[str | None], str | None]:
    """Return a validator that accepts these names, and None."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise ValueError(unknown_name("name", value, names))
        return value

    return check


def parse_section(section: type[SectionT], values: Mapping[str, Any], prefix: str = "") -> SectionT:
    """Return a section made of these values.

    Args:
        section: the class of the section.
        values: by field.
        prefix: a prefix of field names in messages, such as "openai.".

    Raises:
        ValueError: names every wrong value, a line each.
    """
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        mistakes = [_mistake(section, values, prefix, dict(entry)) for entry in error.errors(include_url=False)]
        raise ValueError("\n".join(_lines(mistakes))) from None


def unread(overrides: Iterable[str], *readers: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that overrides of a command line name and no reader reads, each with the first reason.

    Composing refuses keys that a chosen part does not have. This is for keys that every run has in its config.yaml, so
    that runs can be resumed and compared, and whose reader depends on the value of another setting or on the command.

    Args:
        overrides: such as `trainer.learning_rate=0.1`.
        readers: for each, the settings that it does not read, with the reason. A section stands for all its keys.
    """
    found = {}
    for key in (override.partition("=")[0].lstrip("+~") for override in overrides):
        reasons = [[why for name, why in table.items() if f"{key}.".startswith(f"{name}.")] for table in readers]
        if reasons and all(reasons):
            found[key] = reasons[0][0]
    return found


def check_read(overrides: Iterable[str], *readers: Mapping[str, str]) -> None:
    """Raise ValueError if `unread` finds a setting."""
    for key, why in unread(overrides, *readers).items():
        raise ValueError(f"{key} is not read: {why}. Leave it out.")


class _Mistake(NamedTuple):
    """A mistake in a configuration: a complete message, or what was expected in place of the value at `where`."""

    where: str
    value: Any
    message: str = ""
    expected: str = ""


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list, [a, b]",
    "dict_type": "a mapping, {a: 1}",
    "model_type": "a mapping, {a: 1}",
    "dataclass_type": "a mapping, {a: 1}",
}
_BOUNDS = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be above {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be below {lt:g}",
    "too_short": "needs at least {min_length}",
}


def _mistake(section: type[BaseModel], values: Mapping[str, Any], prefix: str, entry: dict[str, Any]) -> _Mistake:
    """Translate an entry of `ValidationError.errors()` into the user's terms."""
    kind, value, context = entry["type"], entry["input"], entry.get("ctx", {})
    where = prefix + _path(entry["loc"], values)
    if kind == "missing":
        return _Mistake(where, value, f"{where} is not set.")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        *above, _ = entry["loc"]
        valid = [prefix + ".".join(map(str, [*above, name])) for name in _fields(section, above)]
        return _Mistake(where, value, unknown_name("setting", where, valid))
    if kind == "literal_error":
        # pydantic lists the alternatives only as text: 'a', 'b' or 'c'.
        valid = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        return _Mistake(where, value, unknown_name(where, value, valid))
    if kind == "value_error":
        reason = str(context["error"]).replace("Unknown name", f"Unknown {where}", 1)
        if reason.startswith((where, "Unknown")):
            return _Mistake(where, value, reason)
        return _Mistake(where, value, f"{where}: {reason}" if isinstance(value, dict) else f"{where}={value}: {reason}")
    if kind in _BOUNDS:
        return _Mistake(where, value, f"{where}={value}: {_BOUNDS[kind].format(**context)}.")
    if kind in _EXPECTED:
        return _Mistake(where, value, expected=_EXPECTED[kind])
    return _Mistake(where, value, f"{where}={value}: {entry['msg']}.")


def _path(location: Sequence[int | str], values: Any) -> str:
    """Return the path of a value, like `a.b[0]`, without pydantic's parts that are no keys, such as the alternatives of
    a type."""
    path = ""
    for number, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
        elif isinstance(values, Mapping) and (part in values or number == len(location) - 1):
            path += f".{part}" if path else part
        else:
            continue
        is_inside = (
            part in values if isinstance(values, Mapping) else isinstance(values, list) and isinstance(part, int)
        )
        values = values[part] if is_inside else None
    return path


def _fields(section: type[BaseModel], above: Sequence[int | str]) -> list[str]:
    """Return the settings of a nested section."""
    kind: Any = section
    for name in above:
        kind = kind.model_fields[name].annotation
    return list(kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__)


def _lines(mistakes: Sequence[_Mistake]) -> list[str]:
    """Return a line for each wrong value. A value may fail for several alternatives: then mistakes inside it are
    reported, and if there are none, all alternatives."""
    lines: dict[str, None] = {}
    for mistake in mistakes:
        if mistake.message:
            lines[mistake.message] = None
        elif not any(other.where.startswith(f"{mistake.where}[") for other in mistakes):
            kinds = dict.fromkeys(other.expected for other in mistakes if other.where == mistake.where)
            quoted = repr(mistake.value) if isinstance(mistake.value, str) else mistake.value
            lines[f"{mistake.where}={quoted}: expected {' or '.join(filter(None, kinds))}."] = None
    return list(lines)
