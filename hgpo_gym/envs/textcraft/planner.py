"""Plans for crafting an item from what is carried."""

from collections.abc import Iterator

from hgpo_gym.envs.textcraft.game import Inventory
from hgpo_gym.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, plain, write_craft


def plan(book: RecipeBook, inventory: Inventory, goal: str) -> Iterator[str]:
    """Yield the actions that craft an item, depth first. What an ingredient takes from the stock is reserved: no other
    ingredient can take it."""
    stock = dict(inventory)
    stock.pop(goal, None)  # the goal has to be crafted
    yield from _take(book, stock, goal, 1)


def _take(book: RecipeBook, stock: dict[str, int], item: str, count: int) -> Iterator[str]:
    """Yield the actions that make the stock hold `count` of an item, then take these out of it."""
    while stock.get(item, 0) < count:
        if recipe := _easiest(book, item):
            names = []
            for ingredient in recipe.ingredients:
                names.append(_choose(book, stock, ingredient))
                yield from _take(book, stock, names[-1], ingredient.number)
            yield write_craft(recipe, tuple(names))
            stock[item] = stock.get(item, 0) + recipe.count
        else:
            yield f"get {count} {plain(item)}"
            stock[item] = stock.get(item, 0) + count
    stock[item] -= count


def _easiest(book: RecipeBook, item: str) -> Recipe | None:
    def depth(recipe: Recipe) -> int:
        return max(
            min(book.depths.get(member, 0) for member in _members(book, ingredient))
            for ingredient in recipe.ingredients
        )

    return min(book.by_item.get(item, ()), key=depth, default=None)


def _choose(book: RecipeBook, stock: Inventory, ingredient: Ingredient) -> str:
    """Return the item for an ingredient: of a kind one that is in stock, else the easiest to craft."""

    def effort(item: str) -> tuple[bool, int, str]:
        return stock.get(item, 0) < ingredient.number, book.depths.get(item, 0), item

    return min(_members(book, ingredient), key=effort)


def _members(book: RecipeBook, ingredient: Ingredient) -> list[str]:
    if not ingredient.is_kind:
        return [ingredient.name]
    return [item for item, kind in book.kind_of.items() if kind == ingredient.name and item in book.by_item]
