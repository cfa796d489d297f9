"""Rules of the shop: the next state of an action."""

from dataclasses import dataclass

import numpy as np

from hgpo_gym.envs.webshop.catalogue import Catalogue
from hgpo_gym.envs.webshop.shop.nouns import Nouns
from hgpo_gym.envs.webshop.shop.pages import DONE, ITEM, RESULTS, SEARCH, SUB_PAGES, ShopPage, ShopState
from hgpo_gym.envs.webshop.shop.scoring import GoalOption, score_purchase

SEARCH_TEMPLATE = "search[<your query>]"
"""Entry of the search action in the admissible actions of the search page."""


@dataclass(frozen=True, slots=True, eq=False)
class Shop:
    """Rules with their options. Immutable; all environments with the same options share one.

    Attributes:
        catalogue: the products.
        prices: float64[products], what they cost.
        nouns: finds the nouns of a title.
        goal_option: text of a goal's option for the comparison with chosen ones.
    """

    catalogue: Catalogue
    prices: np.ndarray
    nouns: Nouns
    goal_option: GoalOption

    def act(self, state: ShopState, page: ShopPage, action: str) -> ShopState | None:
        """Return the next state of an action on this page; None if it is not understood, or not possible there."""
        if action.startswith("click[") and action.endswith("]") and action[6:-1] in page.clickables:
            name, argument = "click", action[6:-1]  # as listed, even if there are brackets in it
        else:
            name, argument = parse_action(action)
        if name == "search" and argument:
            return self._search(state, argument)
        if name == "click" and argument in page.clickables and state.page != SEARCH:
            return self._click(state, argument)
        return None

    def _search(self, state: ShopState, query: str) -> ShopState:
        results = self.catalogue.rank(query)
        return ShopState(state.goal, RESULTS, query, results, visited=state.visited)

    def _click(self, state: ShopState, clickable: str) -> ShopState:
        if clickable == "buy now":
            return self._buy(state)
        if clickable == "back to search":
            return ShopState(state.goal)
        if clickable in SUB_PAGES:
            return state._replace(page=clickable)
        if state.page == RESULTS:
            return self._click_in_results(state, clickable)
        if clickable == "< prev":
            return state._replace(page=ITEM) if state.page in SUB_PAGES else state._replace(page=RESULTS, options=())
        return self._choose(state, clickable)

    def _click_in_results(self, state: ShopState, clickable: str) -> ShopState:
        turn = {"next >": 1, "< prev": -1}.get(clickable)
        if turn is not None:
            return state._replace(results_page=state.results_page + turn)
        asins = {self.catalogue.product(number).asin.lower(): number for number in state.products_shown}
        number = asins[clickable]
        return state._replace(page=ITEM, product=number, options=(), visited=state.visited | {number})

    def _choose(self, state: ShopState, value: str) -> ShopState:
        product = self.catalogue.product(state.product)
        # A value that two options have stands for the last of them.
        name = [name for name, values in product.options.items() if value in values][-1]
        return state._replace(options=tuple((dict(state.options) | {name: value}).items()))

    def _buy(self, state: ShopState) -> ShopState:
        product, price = self.catalogue.product(state.product), float(self.prices[state.product])
        score = score_purchase(product, price, dict(state.options), state.goal, self.nouns, self.goal_option)
        return state._replace(page=DONE, score=score)


def parse_action(action: str) -> tuple[str, str]:
    """Return the name and the lower-case argument of `name[argument]`; two empty texts for any other text.

    As in the original, the name goes from the start to the last bracket that opens an argument. The argument goes to
    the last bracket that closes one. Both are on the first line; the text after them is ignored.
    """
    line = action.partition("\n")[0]
    closing = line.rfind("]")
    opening = line.rfind("[", 1, max(closing - 1, 1))
    return (line[:opening], line[opening + 1 : closing].lower()) if opening > 0 else ("", "")
