"""Actions of ScienceWorld: their templates, the objects in them, and those whose objects have been seen."""

import functools
import re
from collections.abc import Iterable

TEMPLATES = (
    "connect OBJ to OBJ",
    "dunk OBJ in OBJ",
    "move OBJ to OBJ",
    "pour OBJ in OBJ",
    "use OBJ on OBJ",
    "activate OBJ",
    "close OBJ",
    "deactivate OBJ",
    "disconnect OBJ",
    "eat OBJ",
    "flush OBJ",
    "focus on OBJ",
    "go OBJ",
    "look at OBJ",
    "look in OBJ",
    "mix OBJ",
    "open OBJ",
    "pick up OBJ",
    "put down OBJ",
    "read OBJ",
    "teleport OBJ",
)
"""Templates with objects, those with two first: `open OBJ` also matches what begins with `open`."""
FREE = ("look around", "inventory", "task")
"""Actions that take no time."""
AMBIGUOUS = "Ambiguous request"
"""Beginning of the question which of several objects is meant. Its answer is a number."""
NOT_UNDERSTOOD = ("No known action matches that input.", "Unknown action.")
"""Beginnings of what the simulator answers to an action that it does not know."""
MOST_SEEN = 300
"""Limit of the actions `seen`."""

_SYNONYMS = (
    ("examine ", "look at "),
    ("go to ", "go "),
    ("go through ", "go "),
    ("drop ", "put down "),
    ("turn on ", "activate "),
    ("turn off ", "deactivate "),
    ("teleport to ", "teleport "),
)
_INTO = re.compile(r"^(pour|dunk) (.+) into ")
_PATTERNS = tuple((template, re.compile("^" + template.replace("OBJ", "(.+)") + "$")) for template in TEMPLATES)
_ARTICLES = frozenset(("a", "an", "the"))
_LINKS = frozenset(("in", "on", "to", "of", "containing", "called"))
_CONTACTS = frozenset(("anode", "cathode", "terminal", "1", "2"))
"""Words of the contacts of electrical things, which no text names before a wire is connected."""


@functools.lru_cache(maxsize=100_000)
def parse(action: str) -> tuple[str, tuple[str, ...]]:
    """Return the template of an action and its objects; the action itself and none if it has no object."""
    action = _INTO.sub(r"\1 \2 in ", action)
    for synonym, word in _SYNONYMS:
        if action.startswith(synonym):
            action = word + action.removeprefix(synonym)
    for template, pattern in _PATTERNS:
        if found := pattern.match(action):
            return template, found.groups()
    return action, ()


def normalized(name: str) -> str:
    """Return the name of an object in lower case and without articles."""
    return " ".join(word for word in name.lower().split() if word not in _ARTICLES)


def seen_actions(actions: Iterable[str], room: str, goal: str, *, electrical: bool) -> tuple[str, ...]:
    """Return the actions whose objects are named in what the agent has read: all words of a name occur there.

    Actions without an object come first, then those with one. Of those with two objects, the more of them the task or
    the inventory names, the earlier an action comes; `MOST_SEEN` at most.

    Args:
        actions: the valid ones.
        room: the answer and the room.
        goal: the task and the inventory.
        electrical: keep `connect` and `disconnect`, and count the contacts of things as named.
    """
    needed = _words(goal)
    read = needed | _words(room) | _LINKS | (_CONTACTS if electrical else frozenset())
    chosen: list[tuple[int, int, str]] = []
    named: dict[str, tuple[bool, bool]] = {}
    for action in actions:
        template, objects = parse(action)
        if not electrical and template.startswith(("connect", "disconnect")):
            continue
        for name in objects:
            if name not in named:
                words = _words(name)
                named[name] = words <= read, bool(words & needed)
        if all(named[name][0] for name in objects):
            needless = len(objects) - sum(named[name][1] for name in objects) if len(objects) == 2 else 0
            chosen.append((len(objects), needless, action))
    return tuple(action for *_, action in sorted(chosen, key=lambda item: item[:2])[:MOST_SEEN])


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w-]+", text.lower())) - _ARTICLES


def choices(text: str) -> dict[str, str]:
    """Return what each number stands for, if a text asks which of several objects is meant."""
    if not text.startswith(AMBIGUOUS):
        return {}
    return dict(re.findall(r"^(\d+):\t(.*)$", text, flags=re.MULTILINE))
