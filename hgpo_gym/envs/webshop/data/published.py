"""WebShop's published files, and the check that reads each from end to end."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hgpo_gym.envs.webshop.catalogue.json_stream import Advance, stream_array, stream_object
from hgpo_gym.envs.webshop.catalogue.products import is_listed
from hgpo_gym.envs.webshop.catalogue.sources import ATTRIBUTES, HUMAN, PRODUCTS

SHA256 = {
    f"{PRODUCTS}_1000.json": "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
    f"{ATTRIBUTES}_1000.json": "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
    f"{PRODUCTS}.json": "2ef591d65df3af89e972ab72468eb82cbf124d876552d9f3678667edd620a6c8",
    f"{ATTRIBUTES}.json": "1d36af476bdb8f82a5da62bd8acdabe54cd8de2fa84010d37da5c4890feb447e",
    HUMAN: "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
}
"""SHA-256 of each file by name. The sizes are 4.5 MB, 147 kB, 5.5 GB, 186 MB and 5.1 MB. WebShop publishes no digests:
these are the ones that users have published."""
MAX_BYTES = {name: 2**33 if name == f"{PRODUCTS}.json" else 2**29 for name in SHA256}
"""The most bytes of each that are fetched."""


@dataclass(frozen=True)
class CatalogueFiles:
    """Names of the two files of a catalogue."""

    size: str
    products: str
    attributes: str


SMALL = CatalogueFiles("small", f"{PRODUCTS}_1000.json", f"{ATTRIBUTES}_1000.json")
FULL = CatalogueFiles("full", f"{PRODUCTS}.json", f"{ATTRIBUTES}.json")


def examine(file: Path, name: str, advance: Advance) -> Counter[str]:
    """Return the content of a file by product: 1 for the product or its attributes, or its number of human goals.

    Args:
        file: is read whole.
        name: which of the published files it is.
        advance: hears of the bytes that were read.

    Raises:
        ValueError: it is not whole, or another kind of file.
    """
    read = _READERS[name.removesuffix(".json").removesuffix("_1000")]
    if not (found := read(file, advance)):
        raise ValueError(f"{file} is empty or not WebShop's {name}: it has no products.")
    return found


def _products(file: Path, advance: Advance) -> Counter[str]:
    return Counter({raw["asin"]: 1 for raw in stream_array(file, advance) if is_listed(raw) and "name" in raw})


def _attributes(file: Path, advance: Advance) -> Counter[str]:
    members = ((asin, json.loads(text)) for asin, text in stream_object(file, advance))
    return Counter({asin: 1 for asin, about in members if isinstance(about, Mapping) and "attributes" in about})


def _human_goals(file: Path, advance: Advance) -> Counter[str]:
    members = ((asin, json.loads(text)) for asin, text in stream_object(file, advance))
    goals = {asin: sum(map(_is_goal, entries)) for asin, entries in members if isinstance(entries, list)}
    return +Counter(goals)


def _is_goal(entry: object) -> bool:
    return isinstance(entry, Mapping) and bool(entry.get("instruction_attributes"))


_READERS: dict[str, Callable[[Path, Advance], Counter[str]]] = {
    PRODUCTS: _products,
    ATTRIBUTES: _attributes,
    HUMAN.removesuffix(".json"): _human_goals,
}
