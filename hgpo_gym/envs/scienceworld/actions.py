"""Actions of ScienceWorld: their templates, the objects in them, and those whose objects have been seen."""

import functools
import re
from collections.abc import Iterable

CONNECT = "connect OBJ to OBJ"
TEMPLATES = (
    CONNECT,
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
_HERE = re.compile(r"(?:room|location) is called the ([\w ]+)")
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
    the inventory names, the earlier an action comes; of `connect`, the more contacts it joins, those of a wire first,
    and only one of its two directions is kept. Last are `dunk`, `mix` of what nothing can be in, and actions with a
    thing and a room. `MOST_SEEN` at most.

    Args:
        actions: the valid ones.
        room: the answer and the room.
        goal: the task and the inventory.
        electrical: keep `connect` and `disconnect`, and count the contacts of things as named.
    """
    needed = _words(goal)
    read = needed | _words(room) | _LINKS | (_CONTACTS if electrical else frozenset())
    parsed = {action: parse(action) for action in actions}
    containers = {objects for template, objects in parsed.values() if template == "look in OBJ"}
    rooms = {"inventory", *_HERE.findall(room)}
    rooms.update(objects[0] for template, objects in parsed.values() if template == "go OBJ")
    chosen: list[tuple[int, int, str]] = []
    for action, (template, objects) in parsed.items():
        connects = template.startswith(("connect", "disconnect"))
        words = [_words(name) for name in objects]
        if (connects and not electrical) or not all(name <= read for name in words):
            continue
        if template == CONNECT and objects[0] > objects[1]:  # the other direction does the same
            continue
        needless = 0
        if len(objects) == 2:
            needless = sum(not name & (_CONTACTS if connects else needed - _LINKS) for name in words)
            needless += connects and not any("terminal" in name for name in words)
        if len(objects) == 2:
            is_rare = template.startswith("dunk") or not rooms.isdisjoint(objects)
        else:
            is_rare = template == "mix OBJ" and objects not in containers
        chosen.append((3 if is_rare else len(objects), needless, action))
    return tuple(action for *_, action in sorted(chosen, key=lambda item: item[:2])[:MOST_SEEN])


@functools.lru_cache(maxsize=100_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w-]+", text.lower())) - _ARTICLES


def choices(text: str) -> dict[str, str]:
    """Return what each number stands for, if a text asks which of several objects is meant."""
    if not text.startswith(AMBIGUOUS):
        return {}
    return dict(re.findall(r"^(\d+):\t(.*)$", text, flags=re.MULTILINE))
