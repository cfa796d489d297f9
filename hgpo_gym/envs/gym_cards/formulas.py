"""Formulas written token by token: which tokens may follow, their exact value, and how they can still reach a target.

A formula uses every number once. Each pair of parentheses encloses an operator of its own and is not the whole formula,
so that there are finitely many formulas. No text is ever run as code.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal, NamedTuple

Arithmetic = Literal["exact", "original"]
KINDS: dict[str, Callable[[int], Any]] = {"exact": Fraction, "original": int}
"""The kind of number that a card becomes. Dividing two `int` gives a `float`, as in the original's `eval`."""
Number = Any
"""A Fraction or int; a float in the original's arithmetic, and for what is not a number."""
OPERATORS = ("+", "-", "*", "/")
EQUALS = "="
LARGEST_EXPONENT = 64
"""A power beyond it, which only the original's `**` can write, counts as no number."""


class PartialValue(NamedTuple):
    """Value so far of a formula, or of an open pair of parentheses: `total` plus `factor`, the unfinished term."""

    total: Number = 0
    factor: Number = None
    pending: str = ""
    """An operator without its second operand."""
    is_compound: bool = False
    """An operator has been written at this level."""

    @property
    def needs_operand(self) -> bool:
        return self.factor is None or bool(self.pending)


class FormulaPrefix(NamedTuple):
    """Beginning of a formula: the levels, innermost last, and the numbers that are left, ascending."""

    levels: tuple[PartialValue, ...]
    left: tuple[int, ...]

    @classmethod
    def start(cls, numbers: Iterable[int]) -> "FormulaPrefix":
        return cls((PartialValue(),), tuple(sorted(numbers)))


def tokens_after(prefix: FormulaPrefix, operators: Iterable[str]) -> list[str]:
    """Return the tokens after which a formula is still possible: numbers first, `=` last."""
    levels, left = prefix
    # Each level without an operator needs one more number.
    owed = sum(not level.is_compound for level in levels)
    if levels[-1].needs_operand:
        opening = ["("] if "(" in operators and len(left) >= 2 + owed else []
        return [*map(str, dict.fromkeys(left)), *opening]
    tokens = []
    if len(left) >= 1 + owed - (not levels[-1].is_compound):
        tokens += [symbol for symbol in OPERATORS if symbol in operators]
    if len(levels) > 1 and levels[-1].is_compound:
        tokens.append(")")
    return [*tokens, EQUALS] if len(levels) == 1 and not left else tokens


def advance(prefix: FormulaPrefix, token: str) -> FormulaPrefix:
    """Return the prefix after one of `tokens_after`, other than `=`."""
    (*outer, level), left = prefix
    if token == "(":
        return FormulaPrefix((*prefix.levels, PartialValue()), left)
    if token == ")":
        *outer, around = outer
        return FormulaPrefix((*outer, _with_operand(around, level.total + level.factor)), left)
    if token in OPERATORS:
        return FormulaPrefix((*outer, PartialValue(level.total, level.factor, token, True)), left)
    index = left.index(int(token))
    return FormulaPrefix((*outer, _with_operand(level, left[index])), left[:index] + left[index + 1 :])


def _with_operand(level: PartialValue, operand: Number) -> PartialValue:
    total, factor, pending, is_compound = level
    if pending == "*":
        factor *= operand
    elif pending == "/":
        factor = _quotient(factor, operand)
    else:
        total, factor = total + (factor or 0), -operand if pending == "-" else operand
    return PartialValue(total, factor, "", is_compound)


def _quotient(a: Number, b: Number) -> Number:
    try:
        return Fraction(a, b)
    except (ZeroDivisionError, TypeError):  # TypeError: one is not a number already
        return math.nan


def value(prefix: FormulaPrefix) -> Number:
    """Return the exact value of a whole formula; not a number if it divides by zero."""
    return prefix.levels[0].total + prefix.levels[0].factor


def end_values(prefix: FormulaPrefix, operators: Iterable[str]) -> set[int]:
    """Return the positive whole values of all formulas with this beginning. For one number left these are few."""
    found: set[int] = set()
    for token in tokens_after(prefix, operators):
        if token != EQUALS:
            found |= end_values(advance(prefix, token), operators)
        elif (end := value(prefix)) > 0 and end == int(end):  # nan > 0 is false
            found.add(int(end))
    return found


@lru_cache(maxsize=100_000)
def completion(
    tokens: tuple[str, ...], prefix: FormulaPrefix, target: int, operators: tuple[str, ...], arithmetic: Arithmetic
) -> tuple[str, ...] | None:
    """Return the fewest tokens that make a formula with the target as its value of these, `=` included; None if there
    are none.

    Args:
        tokens: so far.
        prefix: that they make.
        target: the value.
        operators: and parentheses that can be written.
        arithmetic: in which it has that value; the exact value is the target in either.
    """

    def is_right(formula: tuple[str, ...]) -> bool:
        return arithmetic == "exact" or python_value("".join(formula), arithmetic) == target

    def search(tokens: tuple[str, ...], prefix: FormulaPrefix, pairs: int) -> tuple[str, ...] | None:
        for token in tokens_after(prefix, operators):
            if token == EQUALS:
                return tokens if value(prefix) == target and is_right(tokens) else None
            if token == "(" and not pairs:
                continue
            after = advance(prefix, token)
            if _may_reach(after, target) and (found := search((*tokens, token), after, pairs - (token == "("))):
                return found
        return None

    # A pair of parentheses costs two tokens: formulas with fewer pairs come first.
    for pairs in range(max(1, len(prefix.left))):
        if found := search(tokens, prefix, pairs):
            return (*found[len(tokens) :], EQUALS)
    return None


def _may_reach(prefix: FormulaPrefix, target: int) -> bool:
    """Return False if no formula of the values so far and the numbers left has the target as its value."""
    # A total of 0 changes nothing that is added to it; a factor of 0 does.
    parts = [level.total for level in prefix.levels if level.total]
    parts += [level.factor for level in prefix.levels if level.factor is not None]
    if any(map(math.isnan, parts)):
        return False
    # More parts take longer than the search that they may save.
    return not 2 <= len(parts) + len(prefix.left) <= 3 or can_make(tuple(sorted((*parts, *prefix.left))), target)


@lru_cache(maxsize=10_000)
def values(numbers: tuple[Number, ...]) -> frozenset[Fraction]:
    """Return the exact values of all formulas with +, -, * and / of these numbers, which are sorted."""
    if len(numbers) == 1:
        return frozenset({Fraction(numbers[0])})
    return frozenset(
        result
        for left, right in _splits(numbers)
        for a in values(left)
        for b in values(right)
        for result in _results(a, b)
    )


@lru_cache(maxsize=100_000)
def can_make(numbers: tuple[Number, ...], target: int) -> bool:
    """Return whether some formula of at least two sorted numbers has the target, which is not 0, as its exact
    value."""
    for left, right in _splits(numbers):
        few, many = sorted((values(left), values(right)), key=len)
        for a in few:
            partners = {target - a, target + a, a - target}
            if a:  # 0 / 0 is no number
                partners |= {target * a, target / a, a / target}
            if not many.isdisjoint(partners):
                return True
    return False


def _splits(numbers: tuple[Number, ...]) -> set[tuple[tuple[Number, ...], tuple[Number, ...]]]:
    """Return each way to part the numbers in two, in one order of the parts."""
    places = range(len(numbers))
    return {
        (tuple(numbers[i] for i in chosen), tuple(numbers[i] for i in places if i not in chosen))
        for size in range(1, len(numbers) // 2 + 1)
        for chosen in combinations(places, size)
    }


def _results(a: Fraction, b: Fraction) -> list[Fraction]:
    quotients = [x / y for x, y in ((a, b), (b, a)) if y]
    return [a + b, a - b, b - a, a * b, *quotients]


BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def python_value(text: str, arithmetic: Arithmetic) -> Any:
    """Return the value that Python gives to a text of digits, `+-*/()` and spaces: tokens `3` `3` are 33, `*` `*` is a
    power. None if it is no formula."""
    try:
        return _python_value(ast.parse(text.lstrip(), mode="eval").body, KINDS[arithmetic])
    except (SyntaxError, ValueError, ArithmeticError):
        return None


def _python_value(node: ast.expr, kind: Callable[[int], Any]) -> Any:
    if isinstance(node, ast.Constant):
        return kind(node.value)  # type: ignore[arg-type]  # the text has no other constants
    if isinstance(node, ast.UnaryOp):
        operand = _python_value(node.operand, kind)
        return -operand if isinstance(node.op, ast.USub) else operand
    if not isinstance(node, ast.BinOp):
        raise ValueError("A number is called like a function: 3(4).")
    left, right = _python_value(node.left, kind), _python_value(node.right, kind)
    if isinstance(node.op, ast.Pow) and not (abs(right) <= LARGEST_EXPONENT >= math.log2(abs(left) + 1)):
        raise ValueError("This power is too large to compute.")
    return BINARY[type(node.op)](left, right)
