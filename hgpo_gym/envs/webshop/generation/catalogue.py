"""Generate a shop for a machine without any download: products and shopping goals, in the files of the WebShop
benchmark.

Products come in families (`families.py`). A family is one kind of product, sold under a few brands, in variants that
differ in one attribute, in the price or in the options on offer. Most of these differences are only on a product's own
pages (`pages.py`), so search alone does not find the right product. The goals (`instructions.py`) do distinguish the
variants. The words are in `vocabulary.toml`.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from hgpo_gym.digests import cached_folder
from hgpo_gym.envs.webshop.generation import families, instructions, pages, vocabulary
from hgpo_gym.files import cache_dir, content_key, make_whole, source_digest

PRODUCTS_FILE, ATTRIBUTES_FILE, GOALS_FILE = "items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"
PRODUCTS_WITH_GOALS = 3_000
"""Approximate number of products with goals in a larger catalogue: the benchmark has 12,087 on 1.18 million."""


class GeneratedProduct(NamedTuple):
    """Product in the form of the three files.

    Attributes:
        record: its element of the product list.
        synthetic: its entry in the attribute file; has an instruction for some products.
        human: its entry in the goal file; empty where the product has no goals.
    """

    record: dict[str, Any]
    synthetic: dict[str, Any]
    human: list[dict[str, Any]]


def generated_folder(seed: int = 0, products: int = 400) -> Path:
    """Return the folder of a generated catalogue, made on first use and stored in the cache. Changed code makes a new
    one."""
    made_by = source_digest(families, instructions, pages, vocabulary, sys.modules[__name__])
    key = content_key([seed, products, made_by, vocabulary.VOCABULARY_FILE.read_text(encoding="utf-8")])
    folder = cache_dir() / "webshop" / "generated" / key
    return cached_folder(folder, lambda whole: _write_files(whole, seed, products))


def write_catalogue(folder: Path, seed: int, products: int) -> Path:
    """Write the three files into the new `folder`, which appears completely or not at all. Memory does not grow with
    size.

    Raises:
        FileExistsError: `folder` is there already.
        ValueError: `products` is not positive.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already: name a new folder for the generated catalogue.")
    return make_whole(folder, lambda whole: _write_files(whole, seed, products))


def _write_files(folder: Path, seed: int, products: int) -> None:
    with (
        _json_lines(folder / PRODUCTS_FILE, "[]") as add_record,
        _json_lines(folder / ATTRIBUTES_FILE, "{}") as add_synthetic,
        _json_lines(folder / GOALS_FILE, "{}") as add_human,
    ):
        for product in generate_catalogue(seed, products):
            key = json.dumps(product.record["asin"])
            add_record(json.dumps(product.record))
            add_synthetic(f"{key}: {json.dumps(product.synthetic)}")
            if product.human:
                add_human(f"{key}: {json.dumps(product.human)}")


@contextmanager
def _json_lines(file: Path, brackets: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that adds an element to a JSON list or object, a line each."""
    with file.open("w", encoding="utf-8") as opened:
        separator = brackets[0] + "\n"

        def add(element: str) -> None:
            nonlocal separator
            opened.write(separator + element)
            separator = ",\n"

        yield add
        opened.write("\n" + brackets[1] + "\n")


def generate_catalogue(seed: int, products: int) -> Iterator[GeneratedProduct]:
    """Yield the products of the catalogue of this seed, family by family; the same on every machine.

    Raises:
        ValueError: `products` is not positive.
    """
    if products < 1:
        raise ValueError(f"A catalogue needs at least one product, got products={products}.")
    return islice(_all_products(seed, min(1.0, PRODUCTS_WITH_GOALS / products)), products)


def _all_products(seed: int, share_with_goals: float) -> Iterator[GeneratedProduct]:
    kinds, brands = vocabulary.read_vocabulary()
    asins = (_asin(seed, number) for number in count())
    for family in count():
        # Goals have a generator of their own, so that products don't depend on which of them have goals.
        rng, goal_rng = Random(f"{seed} {family}"), Random(f"{seed} {family} goals")
        kind = kinds[(seed + 21 * family) % len(kinds)]  # 21 is prime to 50 and walks through the categories
        family_brands = [rng.choice(brands) for _ in range(3)]
        has_goals = goal_rng.random() < share_with_goals
        for member, asin in zip(families.make_family(rng, kind), asins, strict=False):
            yield GeneratedProduct(
                record=pages.product_record(rng, kind, member, asin, rng.choice(family_brands)),
                synthetic=instructions.synthetic_entry(rng, kind, member),
                human=instructions.human_goals(goal_rng, kind, member, asin) if has_goals else [],
            )


def _asin(seed: int, number: int) -> str:
    """Return ten characters, different for each number."""
    code = (number * 48_427_561_391 + seed * 7_046_029_254_386_353) % 36**7  # the first factor is prime to 36
    digits = ""
    for _ in range(7):
        code, digit = divmod(code, 36)
        digits += "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit]
    return "GEN" + digits
