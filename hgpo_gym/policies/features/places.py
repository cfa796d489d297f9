"""The place of an episode, if the environment describes its actions: nested pages, the terms read in each entered
thing, and the offers of the others.

A *thing* is an action with a description that no other action of its page has. A *kind* is a description that several
share. When a page is shown again, all pages that were entered from it are closed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hgpo_gym.policies.base import StepContext
from hgpo_gym.policies.features.words import Task, amounts, content_of, key, read_action, terms_of

NEARBY = 2
"""The number of the task's words before and after an action's name that are searched for words of its kind."""
_THING = "thing"
"""The name of every action with a unique description."""
_MANY = 5
"""The cap for counts of things and terms."""


class PlaceChoice(NamedTuple):
    """The fixed features of an admissible action, see `choices_of`.

    Attributes:
        kind: the description that it shares with others; empty for none.
        thing: it has a unique description.
        named: 0 unless the task contains all of its arguments verbatim; 2 if a word of its kind is near one, else 1.
    """

    kind: str
    thing: bool
    named: int


@dataclass(eq=False, slots=True)
class Place:
    """A page that was entered and not yet left.

    Attributes:
        page: its admissible actions.
        choices: their features.
        thing: the action by which it was entered, if that is a thing; or empty.
        actions_since: the actions on it since, with their counts.
    """

    page: tuple[str, ...]
    choices: tuple[PlaceChoice, ...]
    thing: str
    actions_since: Counter[str] = field(default_factory=Counter)


class PlaceOffer(NamedTuple):
    """The description of a thing: the task's terms in it, and `<` or `>` for its price against the task's."""

    terms: frozenset[str]
    price: str


class Places:
    """The memory of places in one episode.

    Attributes:
        step: the number of steps before the present one.
        stack: the places, outermost first.
        offers: the offer of each thing that was listed.
        inside: the task's terms that were read in each entered thing, including those of its description.
        opened: the actions that opened further pages in each entered thing.
        known: the task's terms that were read anywhere.
    """

    def __init__(self, task: Task):
        self.task = task
        self.step = -1
        self.stack: list[Place] = []
        self.offers: dict[str, PlaceOffer] = {}
        self.inside: dict[str, frozenset[str]] = {}
        self.opened: dict[str, frozenset[str]] = {}
        self.known: frozenset[str] = frozenset()

    @property
    def subject(self) -> Place | None:
        """The innermost place that was entered as a thing."""
        return next((place for place in reversed(self.stack) if place.thing), None)

    def see(self, step_context: StepContext, text: str) -> None:
        """Add a step; `text` is its observation without the task."""
        page, action = step_context.actions, step_context.action
        self.step += 1
        if self.stack and step_context.before is not None:
            self.stack[-1].actions_since[action] += 1
        depth = next((depth for depth, place in enumerate(self.stack) if place.page == page), None)
        choices = choices_of(page, step_context.descriptions, self.task)
        if depth is not None:
            # The page is shown again: leave all places that were entered from it.
            del self.stack[depth + 1 :]
        else:
            thing = action if action in self.offers else ""
            if not thing and (subject := self.subject):
                self.opened[subject.thing] = self.opened.get(subject.thing, frozenset()) | {action}
            self.stack.append(Place(page, choices, thing))
        read = terms_of(text) & self.task.terms
        self.known |= read
        if subject := self.subject:
            thing = subject.thing
            self.inside[thing] = self.inside.get(thing, self.offers[thing].terms) | read
        for choice, description, about in zip(page, step_context.descriptions, choices, strict=True):
            if about.thing and choice not in self.offers:
                self.offers[choice] = offer_of(description, self.task)

    def about_subject(self) -> list[tuple[str | int, ...]]:
        """Return features of the present thing, against the task and other things; empty outside of any."""
        if not (subject := self.subject):
            return []
        thing = subject.thing
        inside = self.inside[thing]
        lacking = len(self.known - inside)
        visited_counts = [len(self.inside[name]) for name in self.inside if name != thing]
        unseen = [len(offer.terms) for name, offer in self.offers.items() if name not in self.inside]
        visited = _compared(len(inside), visited_counts)
        offered = _compared(len(inside), unseen)
        price = self.offers[thing].price
        left = left_to_choose(subject)
        opened = sorted(self.opened.get(thing, ()))
        return [
            ("lacking", min(lacking, 6)),
            ("visited", visited, min(len(visited_counts), _MANY)),
            ("offered", offered),
            ("price", price),
            ("left", left),
            ("share", int(8 * len(inside) / max(1, len(self.task.terms)))),
            *(("opened", action) for action in opened),
            ("opened all", *opened),
            ("fit", min(lacking, 4), left, price),
            ("fit opened", min(lacking, 4), left, price, *opened),
            ("rank", visited, offered, left, price),
        ]

    def about_things(self, page: tuple[str, ...]) -> list[tuple[str | int, ...]]:
        """Return for each choice of a page its features against the task and other things; empty if it is no thing."""
        if self.offers.keys().isdisjoint(page):
            return [()] * len(page)
        new = sorted(
            len(self.offers[action].terms) for action in page if action in self.offers and action not in self.inside
        )
        seen = sorted(len(terms) for terms in self.inside.values())
        entered = min(len(seen), _MANY)
        found: list[tuple[str | int, ...]] = []
        for choice in page:
            if (offer := self.offers.get(choice)) is None:
                found.append(())
            elif (terms := self.inside.get(choice)) is None:
                lacking = min(len(self.known - offer.terms), _MANY)
                found.append(("new", offer.price, _compared(len(offer.terms), new), lacking, entered))
            else:
                lacking = min(len(self.known - terms), _MANY)
                found.append(("seen", offer.price, _compared(len(terms), seen), lacking, entered))
        return found


class Standing(NamedTuple):
    """The features of choices at the present place.

    Attributes:
        row: the row of each choice in `distinct`; choices with equal features share one.
        distinct: uint64[R, N], features of the choices: names and relations to the task, 0 for none.
        place: uint64[P], features of the place.
    """

    row: tuple[int, ...]
    distinct: np.ndarray
    place: np.ndarray


def nowhere(choices: Sequence[str]) -> Standing:
    """Return the features for an environment that does not describe its actions."""
    none = np.zeros((1, 0), dtype=np.uint64)
    return Standing((0,) * len(choices), none, none[0])


def standing_of(places: Places, step_context: StepContext) -> Standing:
    """Return the features at the step that `places` saw last."""
    action_counts = places.stack[-1].actions_since
    choices = choices_of(step_context.actions, step_context.descriptions, places.task)
    used = {
        choice.kind for action, choice in zip(step_context.actions, choices, strict=True) if action in action_counts
    }
    row_of_keys: dict[tuple[int, ...], int] = {}
    row = []
    for action, choice, about in zip(
        step_context.actions, choices, places.about_things(step_context.actions), strict=True
    ):
        chosen = choice.kind in used if choice.kind else action in action_counts
        keys = (
            key("name", _THING if choice.thing else choice.kind or action, choice.named, int(chosen)),
            0
            if choice.thing or (choice.kind and choice.named)
            else key("action", action, int(action in action_counts)),
            key("thing", *about) if about else 0,
            key("thing", *about[:-1]) if about else 0,
        )
        row.append(row_of_keys.setdefault(keys, len(row_of_keys)))
    place_parts = [("step", places.step // 2), ("entered", min(len(places.inside), _MANY)), *places.about_subject()]
    place = [key("place", *part) for part in place_parts]
    return Standing(tuple(row), np.array(list(row_of_keys), dtype=np.uint64), np.array(place, dtype=np.uint64))


def left_to_choose(place: Place) -> int:
    """Return the number of kinds of which the task names an action, and none was taken."""
    pairs = list(zip(place.page, place.choices, strict=True))
    named = {choice.kind for _, choice in pairs if choice.kind and choice.named}
    chosen = {choice.kind for action, choice in pairs if action in place.actions_since}
    return len(named - chosen)


def _compared(count: int, other_counts: list[int]) -> str:
    """Return a count compared with the largest other: `=`, `>`, `<` for one less, `<<`; `-` if there is none."""
    if not other_counts:
        return "-"
    best = max(other_counts)
    return "=" if count == best else ">" if count > best else "<" if count == best - 1 else "<<"


@lru_cache(maxsize=1 << 13)
def choices_of(page: tuple[str, ...], descriptions: tuple[str, ...], task: Task) -> tuple[PlaceChoice, ...]:
    """Return the features of the admissible actions of a page."""
    count = Counter(descriptions)
    return tuple(
        PlaceChoice(
            description if count[description] > 1 else "",
            bool(description) and count[description] == 1,
            _named(action, description if count[description] > 1 else "", task),
        )
        for action, description in zip(page, descriptions, strict=True)
    )


def _named(action: str, kind: str, task: Task) -> int:
    """Return `PlaceChoice.named` of an action."""
    arguments = read_action(action).arguments
    if not arguments or not all(f" {argument.name} " in task.phrase for argument in arguments):
        return 0
    about = set(content_of(kind))
    for argument in arguments:
        before, after = task.phrase.split(f" {argument.name} ", 1)
        if about.intersection([*before.split()[-NEARBY:], *after.split()[:NEARBY]]):
            return 2
    return 1


@lru_cache(maxsize=1 << 16)
def offer_of(description: str, task: Task) -> PlaceOffer:
    price = ""
    if task.amount is not None and (prices := amounts(description)):
        price = ">" if min(prices) > task.amount else "<" if max(prices) <= task.amount else "~"
    return PlaceOffer(terms_of(description) & task.terms, price)
