"""Experts that shop as an agent does: they search, open results, read, choose options and buy.

An expert knows what the pages have shown it: titles and prices in the results, the options of a product that it opened,
the lines of the pages "Features" and "Description" that it read. It works from a `ShoppingTask`, of one of two kinds:

- `reader`: made from the instruction's text alone. It does not understand paraphrases, so it buys the product with most
  of the instruction's words.
- `informed`: made from the goal's attributes and options, which the score uses. It still has to find a product that has
  them: it does not know the goal's product.

They are made for imitation by models with a short memory. They open results in their order, except those that cost too
much. They act at once on each page read. They read features before the description, and choose options in the page's
order. Only after several rejected products does an expert look back and buy the best of them.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hgpo_gym.envs.webshop.catalogue import Catalogue
from hgpo_gym.envs.webshop.catalogue.analyzer import analyze
from hgpo_gym.envs.webshop.catalogue.products import Product
from hgpo_gym.envs.webshop.goals.goal import Goal
from hgpo_gym.envs.webshop.goals.queries import PRICE_LIMIT, suggested_queries
from hgpo_gym.envs.webshop.shop.pages import ITEM, RESULTS, SEARCH, ShopState

FEATURES, DESCRIPTION = "features", "description"
_BUY, _REJECT = "buy now", "< prev"


class Choices(NamedTuple):
    """Options to choose of a product, by name, in the order of its page; and the number of requested values that it
    lacks."""

    chosen: Mapping[str, str]
    lacking: int


@dataclass(frozen=True, slots=True)
class ShoppingTask:
    """Task of an expert.

    Attributes:
        query: what to search for.
        wishes: each a set of terms that stand on a product's pages if it is right.
        limit: the highest price.
        choices: what to choose of a product.
        tolerance: how many wishes a product that is bought at first sight may lack.
        patience: after so many products in vain the best of them is bought.
    """

    query: str
    wishes: tuple[frozenset[str], ...]
    limit: float
    choices: Callable[[Product], Choices]
    tolerance: int
    patience: int


def informed_task(goal: Goal) -> ShoppingTask:
    """Return the task from the goal that the score uses."""

    def choices(product: Product) -> Choices:
        return _choices(product, [value for _, value in goal.options])

    wishes = tuple(_terms(attribute) for attribute in goal.attributes)
    return ShoppingTask(_query(goal), wishes, goal.price_limit, choices, tolerance=0, patience=5)


def reader_task(goal: Goal) -> ShoppingTask:
    """Return the task from the instruction alone."""
    limit = PRICE_LIMIT.search(goal.instruction)
    text = PRICE_LIMIT.sub("", goal.instruction).lower()
    wishes = tuple(frozenset([term]) for term in sorted(_terms(_query(goal))))
    return ShoppingTask(
        _query(goal),
        wishes,
        float(limit[1]) if limit else math.inf,
        lambda product: _choices_in(text, product),
        tolerance=int(0.35 * len(wishes)),
        patience=4,
    )


SHOPPING_TASKS: dict[str, Callable[[Goal], ShoppingTask]] = {"reader": reader_task, "informed": informed_task}
"""Tasks from a goal, by the name of the expert."""


def _query(goal: Goal) -> str:
    return next(iter(suggested_queries(goal.instruction)), goal.instruction)


def _choices(product: Product, requested: Sequence[str]) -> Choices:
    # A value that two options have stands for the last of them, wherever it is clicked.
    name_of = {value: name for name, values in product.options.items() for value in values if value}
    chosen = {name_of[value]: value for value in reversed(requested) if value in name_of}
    in_order = {name: chosen[name] for name in product.options if name in chosen}
    return Choices(in_order, sum(value not in chosen.values() for value in requested))


def _choices_in(text: str, product: Product) -> Choices:
    """Return the choices that a text mentions: as `name: value`, else the longest value that occurs in it as a
    whole."""
    named = {re.split(r"\b(?:with|and) ", part)[-1] for part in text.split(": ")[:-1]}
    lacking = len(named - product.options.keys())
    requested = []
    for name, values in product.options.items():
        before = f"{name}: " if name in named else ""
        mentioned = [value for value in values if value and _stands_in(text, before + value)]
        if mentioned:
            requested.append(max(mentioned, key=len))
        elif _stands_in(text, name.partition(" ")[0]):
            lacking += 1
    choices = _choices(product, requested)
    return choices._replace(lacking=choices.lacking + lacking)


def _stands_in(text: str, words: str) -> bool:
    """Return whether a text contains these words as whole words: not `7` in `7.5`, nor `red` in `covered`."""
    return re.search(rf"(?<![\w.]){re.escape(words)}(?!\w|\.\d)", text) is not None


class SeenPages(NamedTuple):
    """Memory of an expert in an episode: the pages that it saw of each product, by the product's number."""

    seen: Mapping[int, frozenset[str]] = {}

    def after(self, state: ShopState) -> "SeenPages":
        """Return the notes with the page of this state."""
        if state.page not in (ITEM, FEATURES, DESCRIPTION):
            return self
        return SeenPages({**self.seen, state.product: self.of(state.product) | {state.page}})

    def of(self, product: int) -> frozenset[str]:
        return self.seen.get(product, frozenset())


def advise(task: ShoppingTask, notes: SeenPages, state: ShopState, catalogue: Catalogue) -> str:
    """Return the next action, possible in this state. `notes` include this state."""
    if state.page == SEARCH:
        return f"search[{task.query}]"
    return f"click[{_click(task, notes, state, catalogue)}]"


def _click(task: ShoppingTask, notes: SeenPages, state: ShopState, catalogue: Catalogue) -> str:
    if state.page == RESULTS:
        if not state.results or state.query != task.query:
            return "back to search"
        if state.results_page > 1:
            return "< prev"
        return catalogue.product(_next(task, notes, state, catalogue)).asin.lower()
    if state.page != ITEM:
        return "< prev"
    product = catalogue.product(state.product)
    step = _judge(task, product, notes.of(state.product))
    if step == _REJECT and state.product == _next(task, notes, state, catalogue):
        step = _BUY
    if step == _BUY:
        options = dict(state.options)
        chosen = task.choices(product).chosen
        step = next((value for name, value in chosen.items() if options.get(name) != value), _BUY)
    return step


def _judge(task: ShoppingTask, product: Product, seen: frozenset[str]) -> str:
    """Return the link to click on the page of a product of which these pages were seen."""
    if product.prices[0] > task.limit or task.choices(product).lacking:
        return _REJECT
    missing = _missing(task, product, seen)
    if missing <= task.tolerance:
        return _BUY
    if FEATURES not in seen:
        return FEATURES
    return DESCRIPTION if DESCRIPTION not in seen and missing <= task.tolerance + 1 else _REJECT


def _next(task: ShoppingTask, notes: SeenPages, state: ShopState, catalogue: Catalogue) -> int:
    """Return the product to open among the results shown: the first that was not rejected, or the best after `patience`
    products."""
    opened = [number for number in state.products_shown if notes.of(number)]

    def order(number: int) -> tuple[int, int]:
        product, seen = catalogue.product(number), notes.of(number)
        if seen and _judge(task, product, seen) != _REJECT:
            return (0, 0)
        if seen:
            return (2, _missing(task, product, seen) + 3 * task.choices(product).lacking)
        return (3 if product.prices[0] > task.limit or len(opened) >= task.patience else 1, 0)

    return min(state.products_shown, key=order)


def _missing(task: ShoppingTask, product: Product, seen: frozenset[str]) -> int:
    """Return the number of wishes that the pages seen do not meet."""
    shown_terms = _terms(product.title).union(
        *(_terms(f"{name} {' '.join(values)}") for name, values in product.options.items()),
        _terms(" ".join(product.bullets)) if FEATURES in seen else (),
        _terms(product.description) if DESCRIPTION in seen else (),
    )
    return sum(not wish <= shown_terms for wish in task.wishes)


@lru_cache(maxsize=1 << 14)
def _terms(text: str) -> frozenset[str]:
    return frozenset(analyze(text))
