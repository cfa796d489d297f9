"""Choices taken apart: what can be said of them whatever came before."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hgpo_gym.policies.features.episode import NOTHING, kind_of, roles_of
from hgpo_gym.policies.features.hashing import keys_of, mix, padded
from hgpo_gym.policies.features.words import Task, amounts, content_of, key, read_action

TASK_WORDS = 12
"""Words of the task that are conjoined; long instructions have no more."""
OWN_WORDS = 6
"""Words of an action that are."""


@dataclass(frozen=True, eq=False, slots=True)
class ParsedPage:
    """What can be said of choices whatever came before. Choices that differ in nothing here are of one class.

    Attributes:
        texts, descriptions, names: of each choice; names are those of its arguments.
        classes: the class of each choice.
        words: of each class, those that are compared.
        frames: of each class, a number for its frame.
        matching: (choice, kind) of those that have to do with the task, marked where they stand in it as a phrase.
        static: uint64[C, 5] of the classes: the frame with the roles of the arguments (kind), the frame with the words
            of the task before those that match (fine), the frame, how words and amounts match and whether others match
            better (match), and how much the task speaks of it, see `Features` (points).
        near: uint64[C, M], features of the words themselves, 0 for none.
    """

    texts: tuple[str, ...]
    descriptions: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    classes: tuple[int, ...]
    words: tuple[tuple[str, ...], ...]
    frames: tuple[int, ...]
    matching: tuple[tuple[str, str], ...]
    static: np.ndarray
    near: np.ndarray


class _Choice(NamedTuple):
    """What can be said of a choice by itself.

    Attributes:
        names: of its arguments.
        words: those that are compared.
        match: see `match_of`.
        matching: its kind, and a mark where it stands in the task as a phrase; empty where the task has nothing of it.
        alike: equal for choices that differ in nothing here but their numbers.
        frame: as text.
        keys: of kind, fine and frame, see `ParsedPage`.
        shares, price: how it matches, as parts of a text.
        points: see `Features`, but for the description's.
        near: uint64[M], features of the words.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    match: tuple[float, ...]
    matching: str
    alike: tuple[str | int | bool | tuple[str, ...], ...]
    frame: str
    keys: tuple[int, int, int]
    shares: str
    price: str
    points: int
    near: np.ndarray


@lru_cache(maxsize=1 << 13)
def page_of(choices: tuple[str, ...], descriptions: tuple[str, ...], task: Task) -> ParsedPage:
    """Choices taken apart."""
    descriptions = descriptions or ("",) * len(choices)
    known = [_choice(choice, description, task) for choice, description in zip(choices, descriptions, strict=True)]
    best: dict[str, tuple[float, ...]] = {}
    for one in known:
        if one.matching:
            best[one.frame] = tuple(map(max, best.get(one.frame, one.match), one.match))
    classes: dict[tuple[object, ...], int] = {}
    rows, distinct = [], list[tuple[_Choice, str, int]]()
    for one in known:
        top = best.get(one.frame, one.match)
        tops = "".join("!" if value and value == most else "." for value, most in zip(one.match, top, strict=True))
        points = one.points + (one.match[1] > 0 and one.match[2] == top[2])
        row = classes.setdefault((one.alike, tops, points), len(classes))
        if row == len(distinct):
            distinct.append((one, tops, points))
        rows.append(row)
    number = {frame: index for index, frame in enumerate(dict.fromkeys(one.frame for one in known))}
    return ParsedPage(
        texts=choices,
        descriptions=descriptions,
        names=tuple(one.names for one in known),
        classes=tuple(rows),
        words=tuple(one.words for one, _, _ in distinct),
        frames=tuple(number[one.frame] for one, _, _ in distinct),
        matching=tuple((choice, one.matching) for choice, one in zip(choices, known, strict=True) if one.matching),
        static=np.array(
            [(*one.keys, key("match", f"{one.shares} {tops} {one.price}"), points) for one, tops, points in distinct],
            dtype=np.uint64,
        ),
        near=padded([one.near[None] for one, _, _ in distinct]),
    )


@lru_cache(maxsize=1 << 16)
def _choice(choice: str, description: str, task: Task) -> _Choice:
    action = read_action(choice)
    match = match_of(choice, description, task)
    befores = [next((task.before[word] for word in one.words if word in task.content), "") for one in action.arguments]
    shares = " ".join(
        (*(str(int(4 * value)) for value in match[:2]), *(str(int(min(value, 4))) for value in match[2:]))
    )
    own = amounts(f"{choice} {description}") if task.amount is not None else ()
    price = ("<" if min(own) <= task.amount else ">") if own and task.amount is not None else ""
    kind, fine = kind_of(action, task), " ".join((action.frame, *befores))
    words = content_of(" ".join(argument.name for argument in action.arguments))
    points = (action.frame.split(" ", 1)[0] in task.content) + sum(role != NOTHING for role in roles_of(action, task))
    return _Choice(
        names=tuple(argument.name for argument in action.arguments),
        words=words,
        match=match,
        matching=f"{kind} {'=' if match[3] else ''}" if any(value > 0 for value in match) else "",
        alike=(kind, fine, action.frame, shares, price, points, words, bool(description)),
        frame=action.frame,
        keys=(key("kind", kind), key("fine", fine), key("frame", action.frame)),
        shares=shares,
        price=price,
        points=points,
        near=_words(action.frame, words, described=bool(description), task=task),
    )


@lru_cache(maxsize=1 << 16)
def match_of(choice: str, description: str, task: Task) -> tuple[float, ...]:
    """How a choice matches the task: the share of its words that the task has, the same of its description, how many
    of the task's words both have, and how many words of it stand in the task as a phrase."""
    arguments = read_action(choice).arguments
    own, told_of = [word for argument in arguments for word in argument.words], content_of(description)
    both = {word for word in (*own, *told_of) if word in task.content}
    phrases = [argument.name for argument in arguments if f" {argument.name} " in task.phrase]
    return _share(own, task), _share(told_of, task), float(len(both)), float(sum(len(one.split()) for one in phrases))


def _share(words: Sequence[str], task: Task) -> float:
    return sum(word in task.content for word in words) / len(words) if words else 0.0


def _words(frame: str, words: tuple[str, ...], *, described: bool, task: Task) -> np.ndarray:
    """uint64: words of an action, and where they are few also with those of the task."""
    own = keys_of(f"word {frame}", words[:OWN_WORDS])
    if described or not 0 < len(own) <= 2:
        return own
    return np.concatenate([own, mix(own[:, None], task_keys(task)[None]).ravel()])


@lru_cache(maxsize=1 << 12)
def task_keys(task: Task) -> np.ndarray:
    """uint64: the words of a task."""
    return np.array([key("task", word) for word in task.words[:TASK_WORDS]], dtype=np.uint64)
