"""Catalogue: products and search index, built once from WebShop's files into memory-mapped files.

The name of a build is a digest of its content: the two source files and the code and libraries that shape it. All
environments of a process share one `Catalogue`; processes share its pages in memory.
"""

import json
import math
import os
import sys
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hgpo_gym.digests import cached_folder
from hgpo_gym.envs.webshop.catalogue import analyzer, json_stream, products, records, search
from hgpo_gym.envs.webshop.catalogue.products import Product, clean_product, is_listed
from hgpo_gym.envs.webshop.catalogue.records import Records, RecordWriter, mapped_array
from hgpo_gym.envs.webshop.catalogue.search import IndexWriter, SearchIndex
from hgpo_gym.envs.webshop.catalogue.sources import Sources, find_sources
from hgpo_gym.files import cache_dir, content_key, source_digest
from hgpo_gym.progress import ProgressCallback, progress_bar

_LARGE = 50e6
"""Size of source files, in bytes, from which a progress bar is shown."""
_PARSED_PRODUCTS = 4096
"""Number of parsed products in the cache."""


class Catalogue:
    """Products of a shop by number, in the order of their file, and the search over them. Immutable.

    Args:
        folder: what `build_catalogue` made, and has checked.
        sources: the files it was made from.

    Attributes:
        key: identifies the content.
        price_low, price_high: float64[products]; `price_high` is NaN where there is one price.
        synthetic_products: int32, the products that have synthetic goals, in order.
        synthetic_goals: int32, how many each of them has: one for each combination of options.
    """

    def __init__(self, folder: Path, sources: Sources):
        self.folder, self.sources = folder, sources
        self.key = folder.name
        self.price_low, self.price_high, self.synthetic_products, self.synthetic_goals = (
            mapped_array(folder / f"{name}.npy")
            for name in ("price_low", "price_high", "synthetic_products", "synthetic_goals")
        )
        self._asins, self._asin_order, asin_rank = (
            mapped_array(folder / f"{name}.npy") for name in ("asins", "asin_order", "asin_rank")
        )
        self._records = Records(folder, "products")
        self._index = SearchIndex(folder, asin_rank)
        self._product = lru_cache(maxsize=_PARSED_PRODUCTS)(lambda number: Product.from_json(self._records[number]))

    def __len__(self) -> int:
        return len(self._records)

    def product(self, number: int) -> Product:
        """Return the product of a number, 0 to len - 1."""
        return self._product(number)

    def number(self, asin: str) -> int | None:
        """Return the number of a product; None if there is no such product."""
        asin_key = np.array(asin, dtype=self._asins.dtype)  # cut to the longest id there is
        position = int(np.searchsorted(self._asins, asin_key, sorter=self._asin_order))
        if position == len(self) or self._asins[number := int(self._asin_order[position])] != asin:
            return None
        return number

    def search(self, query: str, limit: int = 50) -> tuple[str, ...]:
        """Return the ids of the products that match a query best, best first."""
        return tuple(str(self._asins[number]) for number in self.rank(query, limit))

    def rank(self, query: str, limit: int = 50) -> tuple[int, ...]:
        """Return the numbers of the products that match a query best, best first."""
        return self._index.rank(query, limit)

    def goals_with_attribute(self) -> dict[str, int]:
        """Return the number of synthetic goals that ask for each attribute."""
        return json.loads((self.folder / "goals_with_attribute.json").read_text())


def open_catalogue(data: str | os.PathLike[str] | None = None, progress: ProgressCallback | None = None) -> Catalogue:
    """Return the catalogue of WebShop's files in `data`, built if this is the first time, shared in the process.

    Args:
        data: see `sources.find_sources`.
        progress: hears how the building goes; None shows a bar in a terminal if it takes long.

    Raises:
        FileNotFoundError: the files are not there.
        OSError: the cache directory cannot be written, or is full.
        ValueError: the files are damaged.
    """
    sources = find_sources(data)
    shaped_by = source_digest(analyzer, json_stream, products, records, search, sys.modules[__name__])
    folder = cache_dir() / "webshop" / "catalogues" / content_key([sources.digests(), shaped_by, _libraries()])
    build_catalogue(sources, folder, progress)
    return _opened(folder, sources)


@cache
def _libraries() -> list[str]:
    """Return the versions that shape an index. They take half of the time that another environment takes to make."""
    return [version("regex"), version("PyStemmer")]


@cache
def _opened(folder: Path, sources: Sources) -> Catalogue:
    return Catalogue(folder, sources)


def build_catalogue(sources: Sources, folder: Path, progress: ProgressCallback | None = None) -> None:
    """Read WebShop's files and write the catalogue to `folder`, unless it exists and is valid. See `open_catalogue`."""
    size = sum(file.stat().st_size for file in (sources.products, sources.attributes))

    def build(temporary: Path) -> None:
        with (
            progress_bar(in_bytes=True)
            if progress is None and size > _LARGE
            else nullcontext(progress) as report_progress
        ):
            _Builder(temporary, size, report_progress).build(sources)

    keep(folder, build, 1.5 * size)


def keep(folder: Path, fill: Callable[[Path], None], size: float) -> None:
    """Make a folder of the cache by `fill(folder)`, completely or not at all, unless it exists and is valid.

    Raises:
        OSError: it cannot be written; `size`, the number of bytes that it needs, is part of the message.
    """
    try:
        cached_folder(folder, fill)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror} while making {folder}, which takes about {size / 1e6:.1f} MB: make room there, or set "
            "HGPO_GYM_CACHE to a folder that has it",
        ) from error


class _Builder:
    def __init__(self, folder: Path, size: int, progress: ProgressCallback | None):
        self._folder, self._size, self._progress = folder, size, progress
        self._done = 0
        self._asins: dict[str, None] = {}
        self._price_low, self._price_high = array("d"), array("d")
        self._synthetic_products, self._synthetic_goals = array("i"), array("i")
        self._goals_with_attribute: Counter[str] = Counter()

    def build(self, sources: Sources) -> None:
        attribute_entries = dict(json_stream.stream_object(sources.attributes, self._advance))
        with IndexWriter(self._folder) as index:
            with RecordWriter(self._folder, "products") as lines:
                for raw in json_stream.stream_array(sources.products, self._advance):
                    # Of several products with the same id, the first counts.
                    if is_listed(raw) and raw["asin"] not in self._asins:
                        product = clean_product(raw, json.loads(attribute_entries.pop(raw["asin"], "{}")))
                        lines.add(product.to_json())
                        index.add(product.indexed_text)
                        self._note(product)
            if not self._asins:
                raise ValueError(f"{sources.products} lists no product with an id: it is not a file of products.")
            self._report("writing the search index")
            index.finish()
        self._write()

    def _advance(self, read: int) -> None:
        self._done += read
        self._report("reading products, once")

    def _report(self, words: str) -> None:
        if self._progress:
            self._progress(self._done, self._size, f"WebShop: {words}")

    def _note(self, product: Product) -> None:
        number = len(self._asins)
        self._asins[product.asin] = None
        self._price_low.append(product.prices[0])
        self._price_high.append(product.prices[1] if len(product.prices) > 1 else math.nan)
        if product.instruction is not None and product.instruction_attributes:
            goals = math.prod(map(len, product.options.values()))
            self._synthetic_products.append(number)
            self._synthetic_goals.append(goals)
            for attribute in product.instruction_attributes:
                self._goals_with_attribute[attribute] += goals

    def _write(self) -> None:
        asins = np.array(list(self._asins))
        order = np.argsort(asins, kind="stable").astype(np.int32)
        rank = np.empty_like(order)
        # Inverse permutation: the place of each product in the order of ids.
        rank[order] = np.arange(len(order))
        arrays = {
            "asins": asins,
            "asin_order": order,
            "asin_rank": rank,
            "price_low": np.array(self._price_low),
            "price_high": np.array(self._price_high),
            "synthetic_products": np.array(self._synthetic_products),
            "synthetic_goals": np.array(self._synthetic_goals),
        }
        for name, values in arrays.items():
            np.save(self._folder / f"{name}.npy", values)
        (self._folder / "goals_with_attribute.json").write_text(json.dumps(self._goals_with_attribute))
