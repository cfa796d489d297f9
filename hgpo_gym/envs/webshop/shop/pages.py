"""Pages of the shop: the text of a state, and its links and buttons."""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hgpo_gym.envs.webshop.catalogue import Catalogue
from hgpo_gym.envs.webshop.catalogue.products import Product
from hgpo_gym.envs.webshop.goals.goal import Goal
from hgpo_gym.envs.webshop.shop.scoring import PurchaseScore

PAGE_SIZE = 10
SEARCH, RESULTS, ITEM, DONE = "search", "results", "item", "done"
SUB_PAGES = ("description", "features", "reviews", "attributes")


class ShopState(NamedTuple):
    """State of an episode: all that the page and the score depend on, besides the catalogue.

    Attributes:
        goal: what is wanted.
        page: `SEARCH`, `RESULTS`, `ITEM`, one of `SUB_PAGES` or `DONE`.
        query: the search that led here.
        results: the numbers of the products that it found, best first.
        results_page: which ten of them were shown last, from 1.
        product: the number of the product that was opened last.
        options: what was chosen for it: name and value, in the order of the first choice of each name.
        visited: the products that were opened since the search page was last left.
        score: after the purchase.
    """

    goal: Goal
    page: str = SEARCH
    query: str = ""
    results: tuple[int, ...] = ()
    results_page: int = 1
    product: int = -1
    options: tuple[tuple[str, str], ...] = ()
    visited: frozenset[int] = frozenset()
    score: PurchaseScore | None = None

    @property
    def products_shown(self) -> tuple[int, ...]:
        """Numbers of the products on the present page of results."""
        return self.results[(self.results_page - 1) * PAGE_SIZE : self.results_page * PAGE_SIZE]

    @property
    def phase(self) -> int:
        """Phase: 0 before a search, 1 at results, 2 at a product, 3 with an option of it chosen, 4 after the
        purchase."""
        if self.page in (SEARCH, RESULTS, DONE):
            return {SEARCH: 0, RESULTS: 1, DONE: 4}[self.page]
        return 3 if self.options else 2


class ShopPage(NamedTuple):
    """Page of a state: its text, and its clickables, lower-case, in order, without repetitions."""

    text: str
    clickables: tuple[str, ...]


TEXT, BUTTON, OPTION, LINK = "text", "button", "option", "link"


class Piece(NamedTuple):
    """Text on a page. `kind` is one of `TEXT`, `BUTTON`, `OPTION` and `LINK` (to a product). `clicked` marks a chosen
    option or a visited product."""

    text: str
    kind: str
    clicked: bool = False


def draw_page(state: ShopState, catalogue: Catalogue, *, show_attributes: bool, observation_mode: str) -> ShopPage:
    """Return the page of a state.

    Args:
        state: where the episode is.
        catalogue: the products.
        show_attributes: whether products have a page "Attributes".
        observation_mode: one of `OBSERVATION_MODES`.
    """
    pieces = page_pieces(state, catalogue, show_attributes=show_attributes)
    # Buttons and links come before options, wherever they stand.
    clickables = [piece.text.lower() for piece in pieces if piece.kind in (BUTTON, LINK)]
    clickables += [piece.text for piece in pieces if piece.kind == OPTION]
    return ShopPage(OBSERVATION_MODES[observation_mode](pieces), tuple(dict.fromkeys(clickables)))


def describe_clickables(state: ShopState, page: ShopPage, catalogue: Catalogue) -> tuple[str, ...]:
    """Return a description of each clickable of a page: title and price of a product, the kind of an option; else an
    empty text."""
    described: dict[str, str] = {}
    if state.page == RESULTS:
        products = [catalogue.product(number) for number in state.products_shown]
        described = {product.asin.lower(): f"{product.title}, {product.price}" for product in products}
    elif state.page == ITEM:
        options = catalogue.product(state.product).options
        described = {value: f"{name} of this product" for name, values in options.items() for value in values}
        described |= dict.fromkeys(SUB_PAGES, "page about this product")
    return tuple(described.get(clickable, "") for clickable in page.clickables)


def page_pieces(state: ShopState, catalogue: Catalogue, *, show_attributes: bool) -> list[Piece]:
    """Return the pieces of a state's page, in order."""
    if state.page == DONE:
        return _receipt(state, catalogue)
    if state.page == SEARCH:
        return [*_texts("WebShop", "Instruction: ", state.goal.instruction), Piece("Search", BUTTON)]
    pieces = [*_texts("Instruction:", state.goal.instruction), Piece("Back to Search", BUTTON)]
    return pieces + (_results(state, catalogue) if state.page == RESULTS else _item(state, catalogue, show_attributes))


def _texts(*texts: str) -> list[Piece]:
    return [Piece(text, TEXT) for text in texts if text]


def _results(state: ShopState, catalogue: Catalogue) -> list[Piece]:
    pieces = _texts(f"Page {state.results_page} (Total results: {len(state.results)})")
    if state.results_page > 1:
        pieces.append(Piece("< Prev", BUTTON))
    pieces.append(Piece("Next >", BUTTON))
    for number in state.products_shown:
        product = catalogue.product(number)
        pieces.append(Piece(product.asin, LINK, number in state.visited))
        pieces += _texts(product.title, product.price)
    return pieces


def _item(state: ShopState, catalogue: Catalogue, show_attributes: bool) -> list[Piece]:
    product = catalogue.product(state.product)
    pieces = [Piece("< Prev", BUTTON)]
    if state.page == ITEM:
        pieces += _options(state, product)
        pieces += _texts(product.title, f"Price: {product.price}", "Rating: N.A.")
        buttons = ["Description", "Features", "Reviews", *(["Attributes"] if show_attributes else []), "Buy Now"]
        pieces += [Piece(button, BUTTON) for button in buttons]
    elif state.page == "description":
        pieces += _texts(product.description)
    elif state.page == "features":
        pieces += _texts(*(f" {bullet}" for bullet in product.bullets))
    elif state.page == "attributes":
        pieces += _texts(*(f" {attribute}" for attribute in product.attributes))
        pieces += _texts(product.category, product.query, product.product_category)
    return pieces


def _options(state: ShopState, product: Product) -> list[Piece]:
    """Return the options. As in the original, an option is shown as chosen if its value occurs between quotation marks
    in the address of the page. The address has the values as JSON, so a value with quotation marks or letters beyond
    ASCII is never shown as chosen."""
    address = f"{state.query.replace(' ', '+')}/{state.results_page}/{json.dumps(dict(state.options))}"
    pieces = []
    for name, values in product.options.items():
        pieces += _texts(name)
        pieces += [Piece(value, OPTION, f'"{value}"' in address) for value in values if value]
    return pieces


def _receipt(state: ShopState, catalogue: Catalogue) -> list[Piece]:
    assert state.score is not None
    return _texts(
        *("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"),
        *("Purchased", "asin", catalogue.product(state.product).asin, "options", _options_as_html(dict(state.options))),
        *("attrs", "None", "category", "None", "query", "None", "product category", "None"),
        *("Target", "asin", "options", "attrs", "price upper", "instuction text", "category", "product category"),
        *("query", "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)", str(state.score.value)),
        *("Reward Details ", "None"),
    )


def _options_as_html(options: Mapping[str, str]) -> str:
    """Return JSON that is safe within HTML."""
    text = json.dumps(options, sort_keys=True)
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _as_text(pieces: list[Piece]) -> str:
    return " [SEP] ".join(piece.text.strip() for piece in pieces)


def _as_rich_text(pieces: list[Piece]) -> str:
    clicked = "".join(
        f"You have clicked {piece.text}.\n" for piece in reversed(pieces) if piece.kind == OPTION and piece.clicked
    )
    return clicked + "".join(f"{_rich(piece)}\n" for piece in pieces)


def _rich(piece: Piece) -> str:
    if piece.kind == TEXT:
        return piece.text
    before = {BUTTON: "", OPTION: "  ", LINK: "\n"}[piece.kind]
    clicked = "clicked " if piece.clicked else ""
    return f"{before}[{clicked}button] {piece.text} [{clicked}button_]"


OBSERVATION_MODES: dict[str, Callable[[list[Piece]], str]] = {"text": _as_text, "text_rich": _as_rich_text}
"""Renderers of a page, by name."""
