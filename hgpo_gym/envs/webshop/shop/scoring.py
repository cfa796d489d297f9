"""Score of a purchase: the benchmark's match with the goal, 0 to 1.

score = type * (attributes met + options met + [price <= limit]) / (attributes + options + 1)
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from rapidfuzz.fuzz import token_set_ratio

from hgpo_gym.envs.webshop.catalogue.products import Product
from hgpo_gym.envs.webshop.goals.goal import Goal
from hgpo_gym.envs.webshop.shop.nouns import Nouns

_ALIKE = 85
# The order matters: of several colours in a value, the first of the list is taken. (WebShop's normalize.py.)
_COLOUR_NAMES = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo "
    "caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream "
    "crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather "
    "indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
    "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal "
    "rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise "
    "violet walnut wheat white wine yellow"
)
_COLOURS = tuple(_COLOUR_NAMES.split())
_COLOUR_SET = frozenset(_COLOURS)
_NO_LETTER_OR_DIGIT = re.compile(r"\W")
_LATIN_1 = dict.fromkeys(range(128, 256))


class PurchaseScore(NamedTuple):
    """Score of a purchase. `value` is 0 to 1; `parts` has the benchmark's own names."""

    value: float
    parts: Mapping[str, Any]


def score_purchase(
    product: Product, price: float, chosen: Mapping[str, str], goal: Goal, nouns: Nouns, goal_option: "GoalOption"
) -> PurchaseScore:
    """Return the score of buying a product with the chosen options.

    Args:
        product: what was bought.
        price: what it cost.
        chosen: option values by name.
        goal: what was wanted.
        nouns: finds the nouns of a title.
        goal_option: one of `OPTION_MATCHING`.
    """
    size = len(goal.attributes) + len(goal.options) + 1
    attributes = sum(_has_attribute(product, attribute) for attribute in goal.attributes)
    options = sum(_has_option(chosen, goal_option(name, value)) for name, value in goal.options)
    within_limit = price <= goal.price_limit
    parts = _kind_parts(product, goal, nouns)
    if goal.attributes:
        parts["r_att"] = attributes / len(goal.attributes)
        parts["w_att"] = len(goal.attributes) / size
    if goal.options:
        parts["r_option"] = options / len(goal.options)
        parts["w_option"] = len(goal.options) / size
    parts["r_price"] = within_limit
    parts["w_price"] = 1 / size
    return PurchaseScore((attributes + options + within_limit) / size * parts["r_type"], parts)


def _kind_parts(product: Product, goal: Goal, nouns: Nouns) -> dict[str, Any]:
    """Return the score for the right kind of product: found by the same search, in the same part of the shop, or with a
    title that shares enough nouns with the goal's."""
    query_match = product.query == goal.query
    category_match = len(_category_parts(product.product_category) & _category_parts(goal.product_category)) >= 2
    goal_nouns = nouns(goal.name)
    title_score = len(set(nouns(product.title)) & set(goal_nouns)) / len(goal_nouns) if goal_nouns else 0.2
    if title_score == 0:
        kind = 0.0
    elif title_score < 0.1:
        kind = 0.1
    else:
        kind = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    return {
        "r_type": kind,
        "query_match": query_match,
        "category_match": category_match,
        "title_score": title_score,
    }


def _category_parts(product_category: str) -> set[str]:
    return {part.strip() for part in product_category.split("\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}")}


def _has_attribute(product: Product, goal_attribute: str) -> bool:
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(alike(attribute, goal_attribute) for attribute in product.attributes) or any(
        goal_attribute in text.lower() for text in texts
    )


def _has_option(chosen: Mapping[str, str], goal_option: str) -> bool:
    return any(alike(colour_of(value), goal_option) for value in chosen.values())


GoalOption = Callable[[str | None, str], str]
"""Function from the name and value of a goal's option to the text for comparison."""


def goal_option_original(name: str | None, value: str) -> str:
    """Return the text for comparison of a goal's option, as the original does. For a goal with named options it
    compares the pair of name and value, written as a Python tuple, with the chosen value. So it recognises a colour
    only if the value is exactly that colour's name: wanted `deep-red` is compared as it is, chosen `deep-red` as `red`.
    Because of this, 458 of the 6,910 synthetic goals for the 1,000 products cannot be met in full."""
    if name is None:
        return colour_of(value)
    return min({name, value} & _COLOUR_SET, default=str((name, value)))  # the first of the list, which is in order


def goal_option_corrected(name: str | None, value: str) -> str:  # noqa: ARG001 - the signature of GoalOption
    """Return the value alone, with its colour found in the same way as for a chosen value."""
    return colour_of(value)


OPTION_MATCHING: dict[str, GoalOption] = {"original": goal_option_original, "corrected": goal_option_corrected}
"""Functions for the comparison of goal options, by name."""


def colour_of(value: str) -> str:
    """Return the first colour of the list that is part of the value; the value itself if none is."""
    return next((colour for colour in _COLOURS if colour in value), value)


@lru_cache(maxsize=1 << 16)
def alike(first: str, second: str) -> bool:
    """Return whether two texts share enough words: a token set ratio above 85, on letters and digits alone."""
    first, second = _plain(first), _plain(second)
    return bool(first and second) and round(token_set_ratio(first, second)) > _ALIKE


@lru_cache(maxsize=1 << 14)
def _plain(text: str) -> str:
    return _NO_LETTER_OR_DIGIT.sub(" ", text.translate(_LATIN_1)).lower().strip()
