"""Products of the shop, and the benchmark's cleaning of their entries in the files."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_USUAL_PRICE = 100.0
"""Price of a product without one."""
_LONGEST_ASIN = 10
_NOT_OF_A_NUMBER = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Product:
    """Product as the shop shows it. Read-only.

    Attributes:
        asin: its id.
        bullets: the lines of its page "Features".
        price: as shown, `$a` or `$a to $b`.
        prices: one price, or the two ends of a range.
        options: the values to choose from, by the name of the option.
        attributes: what the benchmark has found it to be; shown on the page "Attributes", decides on rewards.
        category: one of a few departments, e.g. `beauty`.
        query: the search by which the benchmark's authors found it.
        product_category: its place in the shop, parts joined by `›`.
        instruction: the text of its synthetic goals, without options and price; None for a product that has none.
        instruction_attributes: the attributes that this text asks for.
    """

    asin: str
    title: str
    description: str
    bullets: Sequence[str]
    price: str
    prices: Sequence[float]
    options: Mapping[str, Sequence[str]]
    attributes: Sequence[str]
    category: str
    query: str
    product_category: str
    instruction: str | None
    instruction_attributes: Sequence[str]

    def to_json(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, record: bytes) -> "Product":
        return cls(**json.loads(record))

    @property
    def indexed_text(self) -> str:
        """Text that the search engine indexes: title, description, only the first bullet, options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.bullets[:1], options]).lower()


def is_listed(raw: Any) -> bool:
    """Return whether the shop has the product: its id is a text of at most ten characters, and not `nan`."""
    asin = raw.get("asin") if isinstance(raw, Mapping) else None
    return isinstance(asin, str) and 0 < len(asin) <= _LONGEST_ASIN and asin != "nan"


def clean_product(raw: Mapping[str, Any], attribute_entry: Any) -> Product:
    """Return the product of an entry of `items_shuffle*.json` and its entry of `items_ins_v2*.json`, if it has one.

    A field that is missing or of another type is treated as empty; the original code would stop there.
    """
    prices = _prices(raw.get("pricing"))
    bullets = raw.get("small_description")
    attribute_entry = attribute_entry if isinstance(attribute_entry, Mapping) else {}
    attributes, instruction = attribute_entry.get("attributes"), attribute_entry.get("instruction")
    return Product(
        asin=raw["asin"],
        title=_text(raw.get("name")),
        description=_text(raw.get("full_description")),
        bullets=[_text(bullet) for bullet in bullets] if isinstance(bullets, list) else [_text(bullets)],
        price=" to ".join(f"${price}" for price in prices),
        prices=prices,
        options=_options(raw.get("customization_options")),
        attributes=texts(attributes) if isinstance(attributes, list) else ["DUMMY_ATTR"],
        category=_text(raw.get("category")),
        query=_text(raw.get("query")).lower().strip(),
        product_category=_text(raw.get("product_category")),
        instruction=instruction if isinstance(instruction, str) else None,
        instruction_attributes=texts(attribute_entry.get("instruction_attributes")),
    )


def texts(value: object) -> list[str]:
    """Return the texts of a list, without other items; an empty list for any other object."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _prices(pricing: object) -> list[float]:
    """Return the prices in a text: `"$11.98"` is one price, `"$1,099.00 - $20"` are two."""
    amounts = [_NOT_OF_A_NUMBER.sub("", part) for part in str(pricing).split("$")[1:]]
    return [float(amount) for amount in amounts if amount.count(".") <= 1 and amount.strip(".")][:2] or [_USUAL_PRICE]


def _options(raw: object) -> dict[str, list[str]]:
    if not isinstance(raw, Mapping):
        return {}
    return {
        name.lower(): [
            text.strip().replace("/", " | ").lower()
            for text in texts([content.get("value") for content in contents if isinstance(content, Mapping)])
        ]
        for name, contents in raw.items()
        if isinstance(contents, list)
    }
