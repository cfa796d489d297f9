"""EZPoints and Points24: write a formula of the cards' numbers that has a given value, one token at a time."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from hgpo_gym.envs.gym_cards.formulas import (
    EQUALS,
    Arithmetic,
    FormulaPrefix,
    advance,
    completion,
    end_values,
    python_value,
    tokens_after,
    value,
)
from hgpo_gym.envs.gym_cards.games import CardGame

BLANK = " "
"""What the original writes instead of a number that is not available."""
NAMES = {"+": "plus", "-": "minus", "*": "times", "/": "divided by", "(": "open", ")": "close", EQUALS: "finish"}
RIGHT, WRONG = 10.0, -1.0
"""Rewards of the original."""


class Formula(NamedTuple):
    """State: the tokens, the prefix that they make (None where they make none), the original's reward, the end."""

    tokens: tuple[str, ...]
    prefix: FormulaPrefix | None
    reward: float = 0.0
    is_over: bool = False


@dataclass(frozen=True, kw_only=True)
class Points(CardGame):
    """Rules of one hand.

    Attributes:
        cards: the names of the cards, such as `H5`, `SJ`.
        numbers: what they count, in the same order.
        target: the value to reach.
        symbols: operators and parentheses that can be written.
        most_tokens: the original ends a longer formula.
        arithmetic: `exact`, or `original` for Python's floats.
    """

    cards: tuple[str, ...]
    numbers: tuple[int, ...]
    target: int
    symbols: tuple[str, ...]
    most_tokens: int
    arithmetic: Arithmetic

    @property
    def task(self) -> str:
        return (
            f"Write a formula with the value {self.target}, one token at a time: each of the {len(self.cards)} numbers "
            f"once, {' '.join(self.symbols)}, and = at its end."
        )

    @cached_property
    def start(self) -> Formula:
        return Formula((), FormulaPrefix.start(self.numbers))

    @cached_property
    def all_tokens(self) -> tuple[str, ...]:
        return (*map(str, range(1, 11)), *self.symbols, EQUALS)

    @cached_property
    def _shown_cards(self) -> str:
        return f"Cards: {list(self.cards)}. Numbers: {list(self.numbers)}. Current formula: "

    def observation(self, place: Formula) -> str:
        return f"{self._shown_cards}{''.join(place.tokens)}."

    def admissible_actions(self, place: Formula) -> tuple[str, ...]:
        if place.is_over:
            return ()
        if self.original:
            return self.all_tokens
        assert place.prefix is not None  # without `original` every formula is one
        return tuple(tokens_after(place.prefix, self.symbols))

    def outcomes(self, place: Formula, action: str) -> Mapping[Hashable, float]:
        return {(self._original_next if self.original else self._next)(place, action): 1.0}

    def _next(self, place: Formula, token: str) -> Formula:
        tokens, prefix, *_ = place
        assert prefix is not None  # as above
        if token == EQUALS:
            exact = self.arithmetic == "exact"
            result = value(prefix) if exact else python_value("".join(tokens), self.arithmetic)
            return Formula(tokens, prefix, RIGHT if result == self.target else WRONG, True)
        return Formula((*tokens, token), advance(prefix, token))

    def _original_next(self, place: Formula, token: str) -> Formula:
        tokens, prefix, *_ = place
        if len(tokens) > self.most_tokens:
            return Formula(tokens, prefix, WRONG, True)
        if token == EQUALS:
            right = not self._unused(tokens) and python_value("".join(tokens), self.arithmetic) == self.target
            return Formula(tokens, prefix, RIGHT if right else WRONG, True)
        if token.isdigit() and int(token) not in self._unused(tokens):
            return Formula((*tokens, BLANK), prefix, WRONG)
        fits = prefix and token in tokens_after(prefix, self.symbols)
        # A sequence such as `3` `3` is no formula here; the original reads 33.
        return Formula((*tokens, token), advance(prefix, token) if prefix and fits else None)

    def _unused(self, tokens: tuple[str, ...]) -> list[int]:
        left = list(self.numbers)
        for token in tokens:
            if token.isdigit():
                left.remove(int(token))
        return left

    def original_reward(self, place: Formula) -> float:
        return place.reward

    def is_won(self, place: Formula) -> bool:
        return place.reward == RIGHT

    def is_milestone(self, place: Formula) -> bool:
        """Return whether the last token was a card, in a prefix that can still reach the target."""
        return bool(place.tokens) and not place.is_over and place.tokens[-1].isdigit() and bool(self._rest(place))

    def expert_action(self, place: Formula) -> str:
        """Return the next token of a shortest formula; an empty text if none is possible any more."""
        return "" if place.is_over else next(iter(self._rest(place)), "")

    def _rest(self, place: Formula) -> tuple[str, ...]:
        if place.prefix is None:
            return ()
        written = tuple(token for token in place.tokens if token != BLANK)
        return completion(written, place.prefix, self.target, self.symbols, self.arithmetic) or ()

    def describe(self, place: Formula, action: str) -> str:
        cards = [card for card, number in zip(self.cards, self.numbers, strict=True) if action == str(number)]
        meaning = " or ".join(cards) or NAMES.get(action, "")
        if place.prefix is None or action == EQUALS or action not in tokens_after(place.prefix, self.symbols):
            return meaning
        after = advance(place.prefix, action)
        level, left = after.levels[-1], after.left
        # After `*` and `/` only the unfinished term counts, and nothing after `(`.
        total = 0 if level.pending in ("*", "/") else level.total
        so_far = "" if level.factor is None else f", value {total + level.factor}"
        ends = sorted(end_values(after, self.symbols)) if len(left) <= 1 else ()
        end = f", can end at {' '.join(map(str, ends))}" if ends else ""
        return f"{meaning}{so_far}, left {' '.join(map(str, left)) or 'none'}{end}"
