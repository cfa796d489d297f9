"""Where an episode is, of environments that say what their actions stand for: pages within pages, what was read within
each thing that was entered, and what others offer.

A *thing* is an action with a description that no other action of its page has. A *kind* is a description that several
share. A page that is shown again closes all that were entered from it since.
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
"""How many words of the task before and behind an action's own are looked at for those of its kind."""
_THING = "thing"
"""The name of whatever has a description of its own."""
_MANY = 5
"""More things, or more terms, count as if they were so many."""


class PlaceChoice(NamedTuple):
    """What is always so of an admissible action, see `choices_of`.

    Attributes:
        kind: the description that it shares with others; empty for none.
        thing: whether it has a description of its own.
        named: whether all of its words stand in the task as they are: 2 if they do next to a word of its kind, else 1.
    """

    kind: str
    thing: bool
    named: int


@dataclass(eq=False, slots=True)
class Place:
    """A page that was entered and not yet left.

    Attributes:
        page: its admissible actions.
        choices: what they are.
        thing: the action that it was entered by, if that is a thing; or empty.
        taken: what was done on it since.
    """

    page: tuple[str, ...]
    choices: tuple[PlaceChoice, ...]
    thing: str
    taken: Counter[str] = field(default_factory=Counter)


class PlaceOffer(NamedTuple):
    """What the description of a thing says: the task's terms in it, and `<` or `>` for its price against the task's."""

    terms: frozenset[str]
    price: str


class Places:
    """The memory of one episode.

    Attributes:
        step: moments that it was shown before the present one.
        stack: the places, the outermost first.
        offers: of each thing that was listed.
        inside: of each thing that was entered, the task's terms that were read there, its description's among them.
        opened: the pages that were opened there, by their actions.
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
        """Take in a moment; `text` is its observation without the task."""
        page, action = step_context.actions, step_context.action
        self.step += 1
        if self.stack and step_context.before is not None:
            self.stack[-1].taken[action] += 1
        depth = next((depth for depth, place in enumerate(self.stack) if place.page == page), None)
        choices = choices_of(page, step_context.descriptions, self.task)
        if depth is not None:
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
        """How the present thing stands to the task and to others; nothing outside of any."""
        if not (subject := self.subject):
            return []
        thing = subject.thing
        inside = self.inside[thing]
        lacking = len(self.known - inside)
        others = [len(self.inside[other]) for other in self.inside if other != thing]
        unseen = [len(offer.terms) for other, offer in self.offers.items() if other not in self.inside]
        visited = _compared(len(inside), others)
        offered = _compared(len(inside), unseen)
        price = self.offers[thing].price
        left = left_to_choose(subject)
        opened = sorted(self.opened.get(thing, ()))
        return [
            ("lacking", min(lacking, 6)),
            ("visited", visited, min(len(others), _MANY)),
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
        """For each choice of a page: if it is a thing, how it stands to the task and to others; else nothing."""
        if self.offers.keys().isdisjoint(page):
            return [()] * len(page)
        new = sorted(len(self.offers[one].terms) for one in page if one in self.offers and one not in self.inside)
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
    """How choices stand where they are.

    Attributes:
        row: for each choice, its row of `own`; choices that stand alike share one.
        own: uint64[R, N], the names of choices and how they stand to the task, 0 for none.
        place: uint64[P], how the place does.
    """

    row: tuple[int, ...]
    own: np.ndarray
    place: np.ndarray


def nowhere(choices: Sequence[str]) -> Standing:
    """Of an environment that does not say what its actions stand for."""
    none = np.zeros((1, 0), dtype=np.uint64)
    return Standing((0,) * len(choices), none, none[0])


def standing_of(places: Places, step_context: StepContext) -> Standing:
    """At a moment that `places` has seen last."""
    taken = places.stack[-1].taken
    choices = choices_of(step_context.actions, step_context.descriptions, places.task)
    used = {choice.kind for action, choice in zip(step_context.actions, choices, strict=True) if action in taken}
    own: dict[tuple[int, ...], int] = {}
    row = []
    for action, choice, about in zip(
        step_context.actions, choices, places.about_things(step_context.actions), strict=True
    ):
        chosen = choice.kind in used if choice.kind else action in taken
        keys = (
            key("name", _THING if choice.thing else choice.kind or action, choice.named, int(chosen)),
            0 if choice.thing or (choice.kind and choice.named) else key("action", action, int(action in taken)),
            key("thing", *about) if about else 0,
            key("thing", *about[:-1]) if about else 0,
        )
        row.append(own.setdefault(keys, len(own)))
    of_place = [("step", places.step // 2), ("entered", min(len(places.inside), _MANY)), *places.about_subject()]
    place = [key("place", *one) for one in of_place]
    return Standing(tuple(row), np.array(list(own), dtype=np.uint64), np.array(place, dtype=np.uint64))


def left_to_choose(place: Place) -> int:
    """Kinds of which the task names one, and none was taken."""
    pairs = list(zip(place.page, place.choices, strict=True))
    named = {choice.kind for _, choice in pairs if choice.kind and choice.named}
    taken = {choice.kind for action, choice in pairs if action in place.taken}
    return len(named - taken)


def _compared(own: int, others: list[int]) -> str:
    """Whether something is more than the most of others, as much, or less."""
    if not others:
        return "-"
    best = max(others)
    return "=" if own == best else ">" if own > best else "<" if own == best - 1 else "<<"


@lru_cache(maxsize=1 << 13)
def choices_of(page: tuple[str, ...], descriptions: tuple[str, ...], task: Task) -> tuple[PlaceChoice, ...]:
    """The admissible actions of a page."""
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
    """See `PlaceChoice`."""
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
    if task.amount is not None and (own := amounts(description)):
        price = ">" if min(own) > task.amount else "<" if max(own) <= task.amount else "~"
    return PlaceOffer(terms_of(description) & task.terms, price)
