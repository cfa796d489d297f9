"""The goals of a catalogue, made from its products as the benchmark makes them."""

import json
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hgpo_gym.envs.webshop.catalogue import Catalogue, keep
from hgpo_gym.envs.webshop.catalogue.products import Product
from hgpo_gym.envs.webshop.catalogue.records import Records, mapped_array
from hgpo_gym.envs.webshop.catalogue.sources import file_digest
from hgpo_gym.envs.webshop.goals import drawing
from hgpo_gym.envs.webshop.goals.drawing import NO_LIMIT, draw_goals
from hgpo_gym.envs.webshop.goals.goal import Goal
from hgpo_gym.files import cache_dir, content_key, source_digest
from hgpo_gym.suggest import option, unknown_name

KINDS = ("human", "synthetic")
SPLITS = ("train", "validation", "eval", "test", "all")
"""Names of the splits. The catalogue decides which of them exist, see `split_positions`."""
_SMALL_CATALOGUE = 1000
_FULL_SPLITS = {"test": (0, 500), "eval": (500, 1500), "train": (1500, None)}


class GoalList:
    """All goals of a catalogue, of one kind, in the benchmark's shuffled order. Immutable. Each goal is made on access,
    so that the millions of a large catalogue need no memory.

    Args:
        catalogue: whose products the goals are made from.
        folder: what `drawing.draw_goals` wrote.

    Attributes:
        prices: float64[products], what each product costs.
    """

    def __init__(self, catalogue: Catalogue, folder: Path):
        self._catalogue = catalogue
        self.prices, self._row_products, self._row_ends, self._row_limits, self._order, self._place = (
            mapped_array(folder / f"{name}.npy")
            for name in ("prices", "row_products", "row_ends", "row_limits", "order", "place")
        )
        self._human = Records(folder, "human") if (folder / "human.bin").is_file() else None

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Goal]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, position: int) -> Goal:
        if not 0 <= position < len(self):
            raise IndexError(f"There is no goal {position}: they are numbered 0 to {len(self) - 1}.")
        unshuffled = int(self._order[position])
        row = self._row(unshuffled)
        product = self._catalogue.product(int(self._row_products[row]))
        instruction, attributes, options = self._goal_of(product, row, unshuffled - self._start(row))
        limit = float(self._row_limits[row])
        return Goal(
            asin=product.asin,
            category=product.category,
            query=product.query,
            name=product.title,
            product_category=product.product_category,
            instruction=instruction
            if limit == NO_LIMIT
            else f"{instruction}, and price lower than {limit:.2f} dollars",
            attributes=tuple(attributes),
            options=tuple(options),
            price_limit=limit,
        )

    def goal_id(self, position: int) -> str:
        """Return `<category>-<product>-<number among the product's goals>-<digest of the goal's content>`."""
        goal = self[position]
        unshuffled = int(self._order[position])
        first_row = int(np.searchsorted(self._row_products, self._row_products[self._row(unshuffled)]))
        return f"{goal.category}-{goal.asin}-{unshuffled - self._start(first_row)}-{goal.digest}"

    def find(self, goal_id: str) -> int | None:
        """Return the position of the goal with an id; None if there is no such goal."""
        *_, asin, nth, _ = ["", "", "", *goal_id.rsplit("-", 3)]
        product = self._catalogue.number(asin)
        if product is None or not nth.isdecimal():
            return None
        first_row, end_row = np.searchsorted(self._row_products, [product, product + 1]).tolist()
        unshuffled = self._start(first_row) + int(nth)
        if unshuffled >= self._start(end_row):
            return None
        position = int(self._place[unshuffled])
        return position if self.goal_id(position) == goal_id else None

    def weight(self, position: int) -> float:
        """Return the weight by which the original draws a goal: 1 for human goals; for synthetic ones the mean, over
        the goal's attributes, of 1 / the number of goals that ask for the attribute."""
        if self._human is not None:
            return 1
        shares = [1 / self._goals_with_attribute[attribute] for attribute in self[position].attributes]
        return sum(shares) / len(shares)

    @cached_property
    def _goals_with_attribute(self) -> dict[str, int]:
        return self._catalogue.goals_with_attribute()

    def _row(self, unshuffled: int) -> int:
        return int(np.searchsorted(self._row_ends, unshuffled, side="right"))

    def _start(self, row: int) -> int:
        return int(self._row_ends[row - 1]) if row else 0

    def _goal_of(self, product: Product, row: int, number: int) -> tuple[str, Sequence[str], list[Any]]:
        """Return instruction without price, attributes and options of a goal."""
        if self._human is not None:
            instruction, attributes, values = json.loads(self._human[row])
            return instruction, attributes, [(None, value) for value in values]
        options = _combination(product, number)
        words = ", and ".join(f"{name}: {value}" for name, value in options)
        instruction = f"{product.instruction} with {words}" if options else f"{product.instruction}"
        return instruction, product.instruction_attributes, options


def _combination(product: Product, number: int) -> list[tuple[str, str]]:
    """Return the combination of options with a number; names in alphabetical order, the last one's values change
    fastest."""
    chosen = []
    for name in sorted(product.options, reverse=True):
        # Mixed radix, the last name first: its values change fastest.
        number, place = divmod(number, len(product.options[name]))
        chosen.append((name, product.options[name][place]))
    return chosen[::-1]


class GoalIds(Sequence[str]):
    """Ids of some goals, made on access.

    Args:
        goals: all goals.
        positions: of these goals in the list.
    """

    def __init__(self, goals: GoalList, positions: range):
        self._goals, self._positions = goals, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(GoalIds(self._goals, self._positions[index]))
        return self._goals.goal_id(self._positions[index])

    def __contains__(self, goal_id: object) -> bool:
        return isinstance(goal_id, str) and self._goals.find(goal_id) in self._positions


def open_goals(catalogue: Catalogue, kind: str, seed: int) -> GoalList:
    """Return the goals of a catalogue, drawn if this is the first time, shared in the process.

    Args:
        catalogue: the products.
        kind: `human` or `synthetic`.
        seed: of prices and price limits.

    Raises:
        FileNotFoundError: the file of human goals is not there.
        OSError: the cache directory cannot be written, or is full.
        ValueError: an unknown kind; a seed that is none; no goal for these products; a file that is damaged.
    """
    if kind not in KINDS:
        raise ValueError(unknown_name("kind of WebShop goals", kind, KINDS))
    if not isinstance(seed, int):
        raise ValueError(f"catalogue_seed={seed!r}: give a whole number, so that every process draws the same goals.")
    human = catalogue.sources.human if kind == "human" else None
    if human and not human.is_file():
        raise FileNotFoundError(
            f"{human.parent} has no {human.name}: run 'hgpo-gym data webshop', or set {option('goals', 'synthetic')}."
        )
    made_of = [catalogue.key, kind, seed, file_digest(human) if human else "", source_digest(drawing)]
    folder = cache_dir() / "webshop" / "goals" / content_key(made_of)
    keep(folder, lambda temporary: draw_goals(catalogue, human, seed, temporary), 100 * len(catalogue))
    return _opened(catalogue, folder)


@cache
def _opened(catalogue: Catalogue, folder: Path) -> GoalList:
    return GoalList(catalogue, folder)


def split_positions(goals: GoalList, catalogue: Catalogue, split: str) -> range:
    """Return the positions of a split's goals in the whole list.

    Of the full catalogue `test` is 0 to 499, `eval` 500 to 1499 and `train` the rest. Of a catalogue of at most 1,000
    products, the benchmark's small setting, `validation` is 0 to 499 and `train` the rest; where there are fewer than
    1,000 goals, the halves. `all` is there in both.

    Raises:
        ValueError: an unknown split, or one without goals.
    """
    splits = goal_splits(goals, catalogue)
    if split not in splits:
        raise ValueError(f"{unknown_name('split', split, splits)} (The catalogue has {len(catalogue)} products.)")
    positions = range(len(goals))[slice(*splits[split])]
    if not positions:
        raise ValueError(f"The split {split!r} is empty: there are {len(goals)} goals. Set {option('split', 'all')}.")
    return positions


def goal_splits(goals: GoalList, catalogue: Catalogue) -> dict[str, tuple[int, int | None]]:
    """Return begin and end of each split that a catalogue has."""
    if len(catalogue) > _SMALL_CATALOGUE:
        return {**_FULL_SPLITS, "all": (0, None)}
    middle = min(500, len(goals) // 2)
    return {"train": (middle, None), "validation": (0, middle), "all": (0, None)}
