"""Splits: WebShop's own, and generated ones for machines without data. A split selects a catalogue and some of its
goals."""

import os
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from hgpo_gym.envs.webshop.catalogue import Catalogue, open_catalogue
from hgpo_gym.envs.webshop.catalogue.sources import data_place, product_files
from hgpo_gym.envs.webshop.generation import generated_folder
from hgpo_gym.envs.webshop.goals.goal_list import SPLITS, GoalList, goal_splits, open_goals, split_positions
from hgpo_gym.suggest import unknown_name


class GeneratedSplit(NamedTuple):
    """Generated split: the first `goals` goals, or all, of the generated catalogue with a seed."""

    seed: int
    goals: int | None


GENERATED_SPLITS = {"generated": GeneratedSplit(0, None), "generated_test": GeneratedSplit(1, 200)}
"""Splits for training and for testing: other products of the same kinds, and other goals."""
GENERATED_PRODUCTS = 400
"""Number of products in each generated catalogue; they have four human goals each."""


class Split(NamedTuple):
    """Catalogue and goals of a split.

    Attributes:
        name: of several splits that were asked for, the one that was found.
        catalogue: the products.
        goals: all goals of the catalogue.
        positions: of the split's goals in the list.
    """

    name: str
    catalogue: Catalogue
    goals: GoalList
    positions: range


def open_split(
    data: str | os.PathLike[str] | None, split: str | Sequence[str], goals: str, catalogue_seed: int
) -> Split:
    """Return the catalogue and the goals of a split. Both are made on first use and shared in the process.

    Args:
        data: see `sources.find_sources`.
        split: one of WebShop's own, see `goal_list.split_positions`; `generated` or `generated_test`, which need no
            data; or several: the first that the catalogue has, where generated ones stand in only if no place of data
            is given and there are no products at the default one.
        goals, catalogue_seed: see `goal_list.open_goals`.

    Raises:
        FileNotFoundError: WebShop's files are not there.
        OSError: the cache directory cannot be written.
        ValueError: an unknown split or kind of goals, a split without goals, or files that are damaged.
    """
    names = [split] if isinstance(split, str) else list(split)
    for name in names:
        if name not in (*SPLITS, *GENERATED_SPLITS):
            raise ValueError(unknown_name("WebShop split", name, (*SPLITS, *GENERATED_SPLITS)))
    original_splits = [name for name in names if name in SPLITS]
    generated = next((name for name in names if name in GENERATED_SPLITS), None)
    if generated is None or (original_splits and _has_data(data)):
        return _open_original(data, original_splits, goals, catalogue_seed)
    if original_splits:
        warnings.warn(
            f"There are no WebShop products in {data_place(data)}: playing generated ones. "
            "Run 'hgpo-gym data webshop' for the real ones.",
            stacklevel=3,
        )
    return _open_generated(generated, goals, catalogue_seed)


def _has_data(data: str | os.PathLike[str] | None) -> bool:
    """Return whether the caller gave a place of data, right or wrong, or the default one has products."""
    return data is not None or bool(os.environ.get("WEBSHOP_DATA")) or bool(product_files(data_place(data)))


def _open_original(data: str | os.PathLike[str] | None, names: Sequence[str], kind: str, seed: int) -> Split:
    catalogue = open_catalogue(data)
    goals = open_goals(catalogue, kind, seed)
    present = goal_splits(goals, catalogue)
    name = next((name for name in names if name in present), names[0])
    return Split(name, catalogue, goals, split_positions(goals, catalogue, name))


def _open_generated(name: str, kind: str, seed: int) -> Split:
    about = GENERATED_SPLITS[name]
    catalogue = open_catalogue(generated_folder(about.seed, GENERATED_PRODUCTS))
    goals = open_goals(catalogue, kind, seed)
    return Split(name, catalogue, goals, range(len(goals))[: about.goals])
