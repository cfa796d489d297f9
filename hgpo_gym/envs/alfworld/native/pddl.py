"""Parse the PDDL problem of an ALFWorld game: its objects, its initial state and its goal."""

import re
from collections import defaultdict
from dataclasses import dataclass

from hgpo_gym.envs.alfworld.native.fingerprint import UnknownGameRules

PREDICATES = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "openable": ("receptacle",),
    "opened": ("receptacle",),
    "inreceptacle": ("object", "receptacle"),
    "isreceptacleobject": ("object",),
    "inreceptacleobject": ("object", "object"),
    "isreceptacleobjectfull": ("object",),
    "wasinreceptacle": ("object", "receptacle"),
    "receptacletype": ("receptacle", "rtype"),
    "cancontain": ("rtype", "otype"),
    "objecttype": ("object", "otype"),
    "full": ("receptacle",),
    "isclean": ("object",),
    "cleanable": ("object",),
    "ishot": ("object",),
    "heatable": ("object",),
    "iscool": ("object",),
    "coolable": ("object",),
    "pickupable": ("object",),
    "moveable": ("object",),
    "toggleable": ("object",),
    "ison": ("object",),
    "istoggled": ("object",),
    "sliceable": ("object",),
    "issliced": ("object",),
}
"""Predicates of an initial state, and the types of their arguments. The domain's other predicates (held, checked) are
never true at the start of a game."""

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")
_NAME = re.compile(r"[a-z0-9_+.-]+")


@dataclass(frozen=True)
class Problem:
    """A parsed problem. PDDL does not tell upper from lower case: all of it is in lower case.

    Attributes:
        types: the type of every name.
        facts: for every predicate, the arguments for which it is true at the start.
        goal: the goal, one space between tokens.
    """

    types: dict[str, str]
    facts: defaultdict[str, set[tuple[str, ...]]]
    goal: str

    def those(self, predicate: str) -> set[str]:
        """Return the names for which a predicate of one argument is true."""
        return {name for (name,) in self.facts[predicate]}


def tokens(text: str) -> list[str]:
    """Return the tokens of a PDDL text, in lower case, without comments."""
    return _TOKEN.findall(_COMMENT.sub("", text).lower())


def parse_problem(text: str) -> Problem:
    """Parse a problem of the ALFRED domain.

    Raises:
        ValueError: the text is no PDDL problem.
        UnknownGameRules: it says something that games of this domain do not say.
    """
    problem = _read(tokens(text))
    sections = {section[0]: section[1:] for section in problem if isinstance(section, list) and section}
    for name in (":objects", ":init", ":goal"):
        if name not in sections:
            raise ValueError(f"The PDDL problem has no section {name}.")
    types = _typed_names(sections[":objects"])
    return Problem(types, _facts(sections[":init"], types), _flat(sections[":goal"][0]))


def _read(tokens: list[str]) -> list:
    """Return nested lists from tokens. The problem is one list."""
    stack: list[list] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            closed = stack.pop()
            stack[-1].append(closed)
        else:
            raise ValueError("The PDDL problem closes a parenthesis that it did not open.")
    if len(stack) != 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise ValueError("The PDDL problem is not one list in parentheses; it may be truncated.")
    return stack[0][0]


def _flat(expression: str | list) -> str:
    return expression if isinstance(expression, str) else f"( {' '.join(map(_flat, expression))} )"


def _typed_names(section: list) -> dict[str, str]:
    """Return `a b - kind c - kind2` as a dictionary."""
    types: dict[str, str] = {}
    untyped: list[str] = []
    words = iter(section)
    for word in words:
        if word == "-":
            kind = next(words, "")
            types.update(dict.fromkeys(untyped, kind))
            untyped = []
        else:
            untyped.append(word)
    for name in types:
        if not _NAME.fullmatch(name):
            raise UnknownGameRules(f"The PDDL problem has an unusual name: {name!r}.")
    if untyped:
        raise UnknownGameRules(f"The PDDL problem has names without a type: {', '.join(map(str, untyped[:3]))}.")
    return types


def _facts(section: list, types: dict[str, str]) -> defaultdict[str, set[tuple[str, ...]]]:
    facts: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for predicate, *arguments in section:
        if predicate == "=":  # distances and costs, which nothing that an agent sees depends on
            continue
        expected = PREDICATES.get(predicate)
        if expected is None or expected != tuple(types.get(name) for name in arguments):
            raise UnknownGameRules(f"The initial state has an unusual fact: {_flat([predicate, *arguments])}.")
        facts[predicate].add(tuple(arguments))
    return facts
