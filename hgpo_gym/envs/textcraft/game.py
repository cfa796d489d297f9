"""The rules of TextCraft, and its answers to the letter (ADaPT; AgentGym has the same)."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from hgpo_gym.envs.textcraft.recipes import NAMESPACE, RecipeBook, plain

CRAFT, GET = re.compile(r"craft (.*) using (.*)"), re.compile(r"get ([0-9]+) (.*)")
COUNTED = re.compile(r"([0-9]+) (.*)")
DIGITS = 18
"""Longest count. Python refuses to convert numbers of thousands of digits."""

Inventory = Mapping[str, int]


class Answer(NamedTuple):
    """Answer to an action.

    Attributes:
        text: the observation.
        inventory: what is carried now, in the order of first arrival.
        crafted: the item that was crafted; empty otherwise.
        understood: the action was carried out.
    """

    text: str
    inventory: Inventory
    crafted: str = ""
    understood: bool = True


def answer(book: RecipeBook, inventory: Inventory, action: str) -> Answer:
    """Carry out an action. Patterns match at its beginning; what follows a line end is not read."""
    try:
        if match := CRAFT.match(action):
            return _craft(book, inventory, match[1], match[2])
        if match := GET.match(action):
            return _get(book, inventory, match[1], match[2])
        if action.startswith("inventory"):
            return Answer(list_inventory(inventory), inventory)
        raise _RefusedError(f"Could not execute {action}")
    except _RefusedError as refusal:
        return Answer(str(refusal), inventory, understood=False)


def made_or_got(action: str) -> str:
    """Return the item that an action in the form of the listed ones makes or gets; empty for `inventory`."""
    match = GET.match(action) or COUNTED.match(action.removeprefix("craft ").split(" using ", 1)[0])
    return _name(match[2]) if match else ""


def list_inventory(inventory: Inventory) -> str:
    """Return the answer to `inventory`, with its last space."""
    listed = "".join(f"[{plain(item)}] ({count}) " for item, count in inventory.items())
    return "Inventory: " + (listed or "You are not carrying anything.")


class _RefusedError(Exception):
    """An action that cannot be carried out; the message is the observation."""


def _get(book: RecipeBook, inventory: Inventory, count: str, item: str) -> Answer:
    name = _name(item)
    if len(count) > DIGITS or not book.can_be_got(name):
        raise _RefusedError(f"Could not find {item}")
    return Answer(f"Got {int(count)} {item}", inventory | {name: inventory.get(name, 0) + int(count)})  # type: ignore[operator]


def _craft(book: RecipeBook, inventory: Inventory, output: str, inputs: str) -> Answer:
    counted = COUNTED.match(output)
    output_name = _name(counted[2] if counted else output)
    is_kind = output_name in book.kinds
    used = [_counted(text.strip()) for text in inputs.split(",")]
    if any(item in book.kinds or inventory.get(item, -1) < count for item, count in used):
        raise _RefusedError(f"Could not find enough items to craft {None if is_kind else output_name}")
    recipe = None if is_kind else book.find(output_name, used)
    if recipe is None:
        # The original prints the representation of its dataclass.
        tag, item = (output_name, None) if is_kind else (None, output_name)
        count = int(counted[1][:DIGITS]) if counted else 1
        raise _RefusedError(
            "Could not find a valid recipe for "
            f"ItemTagWithCount(item_tag=ItemTag(tag={tag!r}, item_id={item!r}), count={count})"
        )
    left = dict(inventory)
    for item, count in used:
        if left.get(item, 0) < count:  # named twice, and held once
            raise _RefusedError(f"Could not find enough items to craft {output_name}")
        left[item] -= count
        if not left[item]:
            del left[item]
    left[recipe.output] = left.get(recipe.output, 0) + recipe.count
    return Answer(f"Crafted {recipe.count} {recipe.output}", left, crafted=recipe.output)


def _counted(text: str) -> tuple[str, int]:
    match = COUNTED.match(text)
    if match is None or len(match[1]) > DIGITS:
        raise _RefusedError(f"Wrong item format: {text}")
    return _name(match[2]), int(match[1])


def _name(item: str) -> str:
    return NAMESPACE + item.replace(" ", "_")
