"""Goal: the product that a customer wants to buy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgpo_gym.envs.webshop.catalogue import Catalogue
from hgpo_gym.envs.webshop.goals.drawing import NO_LIMIT
from hgpo_gym.files import content_key
from hgpo_gym.suggest import unknown_name

_FROM_PRODUCT = ("category", "query", "name", "product_category")
_GOAL_KEYS = (*_FROM_PRODUCT, "asin", "instruction_text", "attributes", "goal_options", "price_upper", "weight")


@dataclass(frozen=True, slots=True)
class Goal:
    """Goal of an episode.

    Attributes:
        asin, category, query, name, product_category: of the product that the goal was made from.
        instruction: the text that the agent reads.
        attributes: what the bought product has to be.
        options: what has to be chosen: the option's name, None where any will do (human goals), and its value.
        price_limit: the highest price in dollars.
    """

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str | None, str], ...]
    price_limit: float

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Goal":
        """Return a goal from the benchmark's format; `goal_options` is a list, or a dictionary by name."""
        options = record["goal_options"]
        return cls(
            asin=record["asin"],
            category=record["category"],
            query=record["query"],
            name=record["name"],
            product_category=record["product_category"],
            instruction=record["instruction_text"],
            attributes=tuple(record["attributes"]),
            options=tuple(options.items() if isinstance(options, Mapping) else ((None, value) for value in options)),
            price_limit=float(record["price_upper"]),
        )

    @property
    def digest(self) -> str:
        """Digest of the goal's content: 8 hexadecimal digits."""
        return content_key([self.instruction, self.attributes, self.options, self.price_limit])[:8]


def complete_goal(record: Mapping[str, Any], catalogue: Catalogue) -> Goal:
    """Return a user-defined goal, in the benchmark's format: `instruction_text` and, all optional, `attributes` (a
    list), `goal_options` (a dictionary by name, or a list of values) and `price_upper`. The kind of product comes from
    `asin`, a product of the catalogue, or from `category`, `query`, `name` and `product_category`.

    Raises:
        ValueError: something is missing or unknown.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"A goal is a mapping with 'instruction_text' and others, not {record!r}.")
    for name in record.keys() - set(_GOAL_KEYS):
        raise ValueError(unknown_name("key of a goal", name, _GOAL_KEYS))
    if "instruction_text" not in record:
        raise ValueError("The goal lacks 'instruction_text', which the agent reads.")
    complete = {"asin": "", "attributes": (), "goal_options": (), "price_upper": NO_LIMIT, **record}
    if missing := [name for name in _FROM_PRODUCT if name not in record]:
        number = catalogue.number(complete["asin"])
        if number is None:
            raise ValueError(
                f"The goal's product {complete['asin']!r} is not in the catalogue: set 'asin' to one of "
                f"{', '.join(catalogue.search(record['instruction_text'], 3))}, ..., or give {', '.join(missing)}."
            )
        product = catalogue.product(number)
        found = (product.category, product.query, product.title, product.product_category)
        complete = {**dict(zip(_FROM_PRODUCT, found, strict=True)), **complete}
    return Goal.from_record(complete)
