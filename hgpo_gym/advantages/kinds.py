"""Kinds of columns, and the conversion of lists, arrays, CSV rows or pandas Series to an array of a kind.

The conversion does not guess. A text never becomes a number or truth value. A missing value (None, NaN, pandas' NA, a
masked entry) raises an error unless its kind allows it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.memory.keys import hash_text

_EXACT = 2.0**53
"""Every whole number up to this one is exact in float64."""
_TRUTHS = (bool, np.bool_)
_LIKE_NO_NAME = {"", "true", "false", "yes", "no", "nan", "none", "null", "na", "<na>", "inf", "-inf"}


class ColumnError(ValueError):
    """A column has a wrong value, type or shape."""


class ColumnKind(NamedTuple):
    """The allowed entries of a column.

    Attributes:
        expected: the end of an error message.
        dtype: of the array; None keeps the type of the numbers.
        wrong: marks wrong entries of a numeric array. Integer arrays are only checked for truth values.
        text: texts are allowed and become their hashes; a missing text is 0.
        missing: missing numbers are allowed and become NaN.
    """

    expected: str
    dtype: type[np.generic] | None
    wrong: Callable[[np.ndarray], np.ndarray]
    text: bool = False
    missing: bool = False


def _not_whole(array: np.ndarray) -> np.ndarray:
    return (array != np.floor(array)) | ~(np.abs(array) <= _EXACT)


WHOLE = ColumnKind("a whole number", np.int64, _not_whole)
NUMBER = ColumnKind("a finite number", np.float64, lambda array: ~np.isfinite(array))
NUMBER_OR_NONE = ColumnKind("a finite number, or None", np.float64, np.isinf, missing=True)
TRUTH = ColumnKind("True or False", np.bool_, lambda array: (array != 0) & (array != 1))
LABEL = ColumnKind("whole numbers on all rows, or texts on all rows", np.int64, _not_whole, text=True)
ANY = ColumnKind("finite numbers, truth values or names, one kind on all rows", None, np.isinf, text=True, missing=True)


def as_column(name: str, values: Any, kind: ColumnKind, shape: str = "") -> np.ndarray:
    """Convert values to an array of the kind; an array of the right type is returned without a copy.

    Args:
        name: of the column.
        values: an array, a Series or another table's column, or a sequence.
        kind: the allowed entries.
        shape: as documented, such as `[N, K + 1]`; only the number of dimensions is checked. Empty allows any.

    Raises:
        ColumnError: names the column, the first wrong row, its value and the expected kind.
    """
    array = _as_array(name, values, kind)
    if shape and array.ndim != 1 + shape.count(","):
        raise ColumnError(f"StepBatch: {name} has shape {array.shape}, expected {shape}.")
    if array.dtype.kind == "f" or kind is TRUTH:
        _refuse_where(name, array, kind)
    if kind.dtype is None:
        return array
    if kind.dtype is np.int64 and array.dtype == np.uint64:
        return array.view(np.int64)  # hashes: equal ones stay equal
    return array.astype(kind.dtype, copy=False)


def as_texts(name: str, values: Any, *, optional: bool = False) -> list[Any]:
    """Return the texts, with None for missing ones if `optional`. Raises ColumnError for any other entry."""
    rows = _as_list(name, values)
    expected = "a text, or None" if optional else "a text"
    if optional:
        rows = _with_none(rows)
    allowed = (str, type(None)) if optional else str
    _refuse_types(name, rows, {kind for kind in set(map(type, rows)) if not issubclass(kind, allowed)}, expected)
    return rows


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Number hashable names 0, 1, 2, ... in order of appearance, int64[N].

    Raises:
        ColumnError: a name is missing or not hashable, or texts are mixed with other types ("7" and 7).
    """
    rows = _as_list(name, values)
    expected = "a name that can be hashed, such as a text or a number"
    types = set(map(type, rows))
    _refuse_types(name, rows, {kind for kind in types if not _is_name(kind)}, expected)
    try:
        index_of = {value: number for number, value in enumerate(dict.fromkeys(rows))}
    except TypeError:  # a tuple that holds a list
        raise ColumnError(f"StepBatch: {name} has entries that cannot be hashed: give {expected}.") from None
    if any(map(_has_missing, types)) and any(map(is_missing, index_of)):
        row = next(row for row, value in enumerate(rows) if is_missing(value))
        raise _error(name, row, rows[row], "a name on each row")
    texts = [issubclass(kind, str) for kind in types]
    if any(texts) and not all(texts):
        row = next(row for row, value in enumerate(rows) if isinstance(value, str) != isinstance(rows[0], str))
        raise _error(name, row, rows[row], f"texts on all rows or on none (row 0 is {rows[0]!r})")
    return np.fromiter(map(index_of.__getitem__, rows), np.int64, len(rows))


def hashes(texts: Sequence[str | None]) -> np.ndarray:
    """Return the hash of each text, uint64[N]; 0 for None."""
    hashes_of = {text: 0 if text is None else hash_text(text) for text in set(texts)}
    return np.fromiter(map(hashes_of.__getitem__, texts), np.uint64, len(texts))


def is_missing(value: Any) -> bool:
    """Return whether the value is None, NaN, pandas' NA or NaT, or NumPy's masked."""
    return _is_none(type(value)) or (_has_missing(type(value)) and value != value)


def _with_none(values: list[Any]) -> list[Any]:
    """Return the values with None for each missing one."""
    if not any(map(_has_missing, set(map(type, values)))):
        return values
    return [None if is_missing(value) else value for value in values]


def _has_missing(kind: type) -> bool:
    """Return whether a value of this type may be a missing one."""
    return _is_none(kind) or issubclass(kind, float | np.floating)


def _is_name(kind: type) -> bool:
    # A tensor's hash is its identity: equal tensors would be different names.
    return issubclass(kind, Hashable) and (issubclass(kind, np.generic) or not hasattr(kind, "__array__"))


def _is_none(kind: type) -> bool:
    # By name: pandas need not be installed.
    return kind.__name__ in ("NoneType", "NAType", "NaTType", "MaskedConstant")


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, np.ma.MaskedArray):
        return values.tolist()  # None where masked
    if isinstance(values, str | bytes | Mapping) or not (hasattr(values, "__array__") or hasattr(values, "__iter__")):
        raise ColumnError(f"StepBatch: {name} is {values!r}: give a sequence with one entry a step.")
    return np.asarray(values).tolist() if hasattr(values, "__array__") else list(values)


def _as_array(name: str, values: Any, kind: ColumnKind) -> np.ndarray:
    """Return an array of truth values or numbers with the dimensions of the values."""
    if hasattr(values, "__array__") and not isinstance(values, np.ma.MaskedArray):
        values = np.asarray(values)
        if values.dtype.kind in "biuf":
            return values
    rows = _as_list(name, values)
    shape: tuple[int, ...] = (len(rows),)
    if {list, tuple, np.ndarray} & set(map(type, rows)):
        nested = np.array(rows, dtype=object)
        rows, shape = nested.ravel().tolist(), nested.shape
    return _of_scalars(name, rows, kind, rows_of=int(np.prod(shape[1:]))).reshape(shape)


def _of_scalars(name: str, entries: list[Any], kind: ColumnKind, rows_of: int) -> np.ndarray:
    types = set(map(type, entries))
    # A column of only None counts as text, unless the kind allows missing numbers.
    of_texts = kind.text and (any(issubclass(entry_type, str) for entry_type in types) or not kind.missing)
    texts = _with_none(entries) if of_texts else ()
    if texts and all(issubclass(entry_type, (str, type(None))) for entry_type in set(map(type, texts))):
        return _of_texts(name, texts, kind)
    missing = {entry_type for entry_type in types if _is_none(entry_type)}
    wrong = {entry_type for entry_type in types - missing if not issubclass(entry_type, (Real, *_TRUTHS))}
    if not kind.missing or types & set(_TRUTHS):
        wrong |= missing  # None is neither true nor false
    _refuse_types(name, entries, wrong, kind.expected, rows_of)
    if missing:
        entries = [np.nan if _is_none(type(entry)) else entry for entry in entries]
    if all(issubclass(entry_type, (Integral, *_TRUTHS)) for entry_type in types) and types:
        array = np.array(entries)
        if array.dtype == object:  # beyond 64 bits
            row = next(row for row, entry in enumerate(entries) if abs(entry) >= 2**63)
            raise _error(name, row // rows_of, entries[row], kind.expected)
        return array
    return np.array(entries, dtype=np.float64)


def _of_texts(name: str, texts: list[str | None], kind: ColumnKind) -> np.ndarray:
    if kind.dtype is None:
        # A user's column: a CSV reader may give numbers as texts, and hashing these would hide the mistake.
        like_numbers = {text for text in set(texts) if text is not None and _reads_like_a_value(text)}
        if like_numbers:
            row = next(row for row, text in enumerate(texts) if text in like_numbers)
            raise _error(name, row, texts[row], "numbers and truth values as such, or names that read like neither")
    return hashes(texts).view(np.int64)


def _reads_like_a_value(text: str) -> bool:
    if text.strip().lower() in _LIKE_NO_NAME:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse_types(name: str, entries: Sequence[Any], wrong: set[type], expected: str, rows_of: int = 1) -> None:
    if wrong:
        entry = next(entry for entry, value in enumerate(entries) if type(value) in wrong)
        raise _error(name, entry // rows_of, entries[entry], expected)


def _refuse_where(name: str, array: np.ndarray, kind: ColumnKind) -> None:
    wrong = kind.wrong(array)
    if wrong.any():
        place = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise _error(name, int(place[0]), array[place].item(), kind.expected)


def _error(name: str, row: int, value: Any, expected: str) -> ColumnError:
    shown = f"the text {value!r}" if isinstance(value, str) else repr(value)
    return ColumnError(f"StepBatch: {name} of row {row} is {shown}: give {expected}.")
