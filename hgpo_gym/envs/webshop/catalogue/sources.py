"""Find WebShop's files: the products, the benchmark's attributes of each, and the goals that people wrote."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgpo_gym.digests import sha256
from hgpo_gym.files import cache_dir, content_key, expand_home, read_entry, write_entry
from hgpo_gym.suggest import option

PRODUCTS, ATTRIBUTES, HUMAN = "items_shuffle", "items_ins_v2", "items_human_ins.json"
_REMEDY = f"Run 'hgpo-gym data webshop', or set {option('data')} or $WEBSHOP_DATA"


@dataclass(frozen=True, slots=True)
class Sources:
    """Files of one catalogue.

    Attributes:
        products: `items_shuffle.json` or `items_shuffle_1000.json`.
        attributes: `items_ins_v2*.json` with the same ending.
        human: `items_human_ins.json`, which may be missing.
    """

    products: Path
    attributes: Path
    human: Path

    def digests(self) -> list[str]:
        """Digests of the first two files, which decide the catalogue."""
        return [file_digest(self.products), file_digest(self.attributes)]


def find_sources(data: str | os.PathLike[str] | None = None) -> Sources:
    """Return the files in `data`: a folder, or the file of products to use if the folder has several. None:
    $WEBSHOP_DATA, else ~/.cache/webshop.

    Raises:
        FileNotFoundError: the products or their attributes are not there.
        ValueError: the folder has several files of products.
    """
    place = data_place(data)
    products = place if place.is_file() else _only(product_files(place), place)
    if not products.name.startswith(PRODUCTS):
        raise ValueError(f"{products} is not a file of WebShop's products: its name begins with {PRODUCTS!r}.")
    attributes = products.with_name(ATTRIBUTES + products.name.removeprefix(PRODUCTS))
    if not attributes.is_file():
        raise FileNotFoundError(f"{products} needs {attributes.name} beside it. {_REMEDY} to where both are.")
    return Sources(products, attributes, products.with_name(HUMAN))


def data_place(data: str | os.PathLike[str] | None) -> Path:
    """Return the folder or file that `data` names. If it is None, return $WEBSHOP_DATA, else ~/.cache/webshop."""
    place = Path(data if data is not None else os.environ.get("WEBSHOP_DATA") or "~/.cache/webshop")
    return expand_home(place, f"{_REMEDY} to the folder of its files.").resolve()


def product_files(folder: Path) -> list[Path]:
    """Return the files of products in a folder, in order; none if there is no such folder."""
    return sorted(folder.glob(f"{PRODUCTS}*.json"))


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal. It is stored in the cache directory, because reading
    gigabytes is slow."""
    stat = file.stat()
    note = cache_dir() / "webshop" / "digests" / content_key([str(file), stat.st_size, stat.st_mtime_ns])
    known = read_entry(note, "sha256")
    if known is None:
        known = sha256(file).encode()
        write_entry(note, "sha256", known)
    return known.decode()


def _only(files: Sequence[Path], folder: Path) -> Path:
    if not files:
        raise FileNotFoundError(
            f"WebShop's products not found in {folder}: expected {PRODUCTS}*.json. {_REMEDY} to the folder that has "
            "it; or play generated products: split='generated' or 'generated_test'."
        )
    if len(files) > 1:
        names = " and ".join(file.name for file in files)
        raise ValueError(f"{folder} has several catalogues, {names}: set {option('data')} to the file to use.")
    return files[0]
