"""Write a member of a family as a record of the benchmark's file of products: the texts of its pages."""

from random import Random
from string import capwords
from typing import Any

from hgpo_gym.envs.webshop.generation.families import Member
from hgpo_gym.envs.webshop.generation.vocabulary import Attribute, ProductKind

_PLACES, _PLACE_WEIGHTS = ("title", "bullet", "description"), (25, 85, 100)  # the weights are cumulative


def product_record(rng: Random, kind: ProductKind, member: Member, asin: str, brand: str) -> dict[str, Any]:
    """Return the product's element in the list of products. Each attribute occurs in one place."""
    places: dict[str, list[Attribute]] = {"title": [], "bullet": [], "description": []}
    for attribute in member.attributes:
        places[rng.choices(_PLACES, cum_weights=_PLACE_WEIGHTS)[0]].append(attribute)
    return {
        "name": _title(rng, kind, brand, places["title"]),
        "full_description": _description(rng, kind, brand, places["description"]),
        "pricing": _price_text(member.price),
        "images": [f"https://example.com/{asin}.jpg"],
        "product_category": kind.path,
        "average_rating": rng.randint(34, 50) / 10 if rng.random() < 0.65 else "",
        "small_description": _bullets(rng, kind, places["bullet"]),
        "customization_options": _option_records(member),
        "asin": asin,
        "category": kind.category,
        "query": kind.query,
        "page": rng.randint(1, 400),
    }


def _title(rng: Random, kind: ProductKind, brand: str, attributes: list[Attribute]) -> str:
    noun, use = capwords(kind.noun), rng.choice(kind.uses)
    name = f"{brand} {rng.choice('KMNRTX')}{rng.randint(10, 9999)}" if rng.random() < 0.4 else brand
    shape = rng.randrange(3)
    if shape == 0:
        return ", ".join([f"{name} {noun}", *(capwords(attribute.phrase) for attribute in attributes), use])
    if shape == 1:
        return " | ".join([f"{name} {noun} - {use}", *(capwords(attribute.phrase) for attribute in attributes)])
    before = [capwords(attribute.phrase) for attribute in attributes if attribute.lead == "is"]
    behind = [f"{attribute.lead} {capwords(attribute.phrase)}" for attribute in attributes if attribute.lead != "is"]
    return f"{' '.join([name, *before, noun, *behind])}, {use}"


def _description(rng: Random, kind: ProductKind, brand: str, attributes: list[Attribute]) -> str:
    """Return a description; an empty text for a part of the products without attributes in it."""
    if not attributes and rng.random() < 0.4:
        return ""
    facts = [f"{attribute.phrase.capitalize()}: {attribute.says}." for attribute in attributes]
    return " ".join([kind.about, *facts, f"{brand}: {rng.choice(kind.fillers)}."])


def _bullets(rng: Random, kind: ProductKind, attributes: list[Attribute]) -> list[str]:
    """Return the bullets. The search engine reads only the first one, so that one has no information."""
    style = rng.randrange(3)
    first, later = rng.sample(kind.fillers, 2)
    return [first, *(_bullet(style, attribute) for attribute in attributes), later]


def _bullet(style: int, attribute: Attribute) -> str:
    if style == 0:
        return f"{attribute.phrase.upper()} - {attribute.says}"
    if style == 1:
        return f"{capwords(attribute.phrase)}: {attribute.says}."
    return f"【{capwords(attribute.phrase)}】{attribute.says}"


def _price_text(price: tuple[float, float] | None) -> str:
    if price is None:
        return ""
    low, high = price
    return f"${low}" if low == high else f"${low} - ${high}"


def _option_records(member: Member) -> dict[str, list[dict[str, Any]]]:
    """Return values as the benchmark writes them. If a product has several prices, the values of its last option have
    them."""
    low, high = member.price or (0.0, 0.0)
    last = list(member.options)[-1]
    records = {}
    for name, values in member.options.items():
        steps = (high - low) / max(1, len(values) - 1) if name == last else 0.0
        prices = [round(low + steps * place, 2) if high > low else 0.0 for place in range(len(values))]
        records[name] = [
            {"is_selected": place == 0, "value": value, "price_string": f"${price}" if price else "", "price": price}
            for place, (value, price) in enumerate(zip(values, prices, strict=True))
        ]
    return records
