"""Parsed choices: the features that do not depend on earlier steps."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from hgpo_gym.policies.features.episode import NOTHING, kind_of, roles_of
from hgpo_gym.policies.features.hashing import keys_of, mix, padded
from hgpo_gym.policies.features.words import (
    LITTLE_WORDS,
    Task,
    amounts,
    content_of,
    is_number,
    key,
    read_action,
    tokens,
)

TASK_WORDS = 12
"""The most words of the task that form conjunctions, in long instructions."""
OWN_WORDS = 6
"""The most words of an action that form features."""

_NO_TOPS = "...."
"""The mark of a choice that does not match the task, for the numbers of `match_of`."""


@dataclass(frozen=True, eq=False, slots=True)
class ParsedPage:
    """The features of choices that do not depend on earlier steps. Choices with equal features form a class.

    Attributes:
        texts, descriptions, names: of each choice; names are those of its arguments.
        classes: the class of each choice.
        words: the content words of each class.
        frames: a number for the frame of each class.
        matching: (choice, kind) of choices that match the task, marked if the task contains them as a phrase.
        static: uint64[C, 5] of the classes: the frame with the roles of the arguments (kind), the frame with the words
            of the task before those that match (fine), the frame, how words and amounts match and whether others match
            better (match), and how much the task speaks of it, see `Features` (points).
        near: uint64[C, M], features of the words themselves and of the descriptions' words, 0 for none.
        choices_of: the choices with this text or name.
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
    choices_of: dict[str, list[int]]


class _Choice(NamedTuple):
    """The features of a single choice.

    Attributes:
        names: the names of its arguments.
        words: its content words.
        match: see `match_of`.
        matching: its kind, with a mark if the task contains it as a phrase; empty if it does not match the task.
        alike: equal for choices whose features here are equal.
        frame: the frame, as text.
        keys: the hashes of kind, fine and frame, see `ParsedPage`.
        shares, price: the match with the task, as parts of a text.
        points: see `Features`, without the point for the description.
        near: uint64[M], features of the words.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    match: tuple[float, ...]
    matching: str
    alike: str
    frame: str
    keys: tuple[int, int, int]
    shares: str
    price: str
    points: int
    near: np.ndarray


@lru_cache(maxsize=1 << 13)
def page_of(
    choices: tuple[str, ...], descriptions: tuple[str, ...], task: Task, description_words: int = 0
) -> ParsedPage:
    """Return the parsed choices of a page. The first `description_words` words of a description form features."""
    descriptions = descriptions or ("",) * len(choices)
    parsed = [
        _choice(choice, description, task, description_words)
        for choice, description in zip(choices, descriptions, strict=True)
    ]
    best: dict[str, tuple[float, ...]] = {}
    for item in parsed:
        if item.matching:
            best[item.frame] = tuple(map(max, best.get(item.frame, item.match), item.match))
    classes: dict[tuple[str, str, int], int] = {}
    rows, distinct = [], list[tuple[_Choice, str, int]]()
    for item in parsed:
        tops, points = _NO_TOPS, item.points
        if item.matching:
            top = best[item.frame]
            tops = "".join("!" if value and value == most else "." for value, most in zip(item.match, top, strict=True))
            # A point for the description if it has a word of the task, and none of its frame matches better.
            points += item.match[1] > 0 and item.match[2] == top[2]
        row = classes.setdefault((item.alike, tops, points), len(classes))
        if row == len(distinct):
            distinct.append((item, tops, points))
        rows.append(row)
    choices_of: defaultdict[str, list[int]] = defaultdict(list)
    for place, (choice, item) in enumerate(zip(choices, parsed, strict=True)):
        choices_of[choice].append(place)
        for name in item.names:
            choices_of[name].append(place)
    number = {frame: index for index, frame in enumerate(dict.fromkeys(item.frame for item in parsed))}
    return ParsedPage(
        texts=choices,
        descriptions=descriptions,
        names=tuple(item.names for item in parsed),
        classes=tuple(rows),
        words=tuple(item.words for item, _, _ in distinct),
        frames=tuple(number[item.frame] for item, _, _ in distinct),
        matching=tuple((choice, item.matching) for choice, item in zip(choices, parsed, strict=True) if item.matching),
        static=np.array(
            [
                (*item.keys, key("match", f"{item.shares} {tops} {item.price}"), points)
                for item, tops, points in distinct
            ],
            dtype=np.uint64,
        ),
        near=padded([item.near[None] for item, _, _ in distinct]),
        choices_of=dict(choices_of),
    )


@lru_cache(maxsize=1 << 16)
def _choice(choice: str, description: str, task: Task, description_words: int) -> _Choice:
    action = read_action(choice)
    match = match_of(choice, description, task)
    befores = [next((task.before[word] for word in arg.words if word in task.content), "") for arg in action.arguments]
    # Coarse numbers: exact ones would make almost every choice its own class.
    shares = " ".join(
        (*(str(int(4 * value)) for value in match[:2]), *(str(int(min(value, 4))) for value in match[2:]))
    )
    prices = amounts(f"{choice} {description}") if task.amount is not None else ()
    price = ("<" if min(prices) <= task.amount else ">") if prices and task.amount is not None else ""
    kind, fine = kind_of(action, task), " ".join((action.frame, *befores))
    words = content_of(" ".join(argument.name for argument in action.arguments))
    described = tuple(islice((word for word in tokens(description) if word not in LITTLE_WORDS), description_words))
    # A sign such as `+` has no frame; numbers share one. An argument that is a number has no words.
    frame = "number" if is_number(action.frame) else action.frame or choice
    subject = f"{frame} {len(words) > 0}"
    points = (action.frame.split(" ", 1)[0] in task.content) + sum(role != NOTHING for role in roles_of(action, task))
    return _Choice(
        names=tuple(argument.name for argument in action.arguments),
        words=words,
        match=match,
        matching=f"{kind} {'=' if match[3] else ''}" if any(value > 0 for value in match) else "",
        # One text, because Python keeps the hash of a text, and not that of a tuple.
        alike=repr((kind, fine, action.frame, shares, price, points, words, bool(description), *described)),
        frame=action.frame,
        keys=(key("kind", kind), key("fine", fine), key("frame", action.frame)),
        shares=shares,
        price=price,
        points=points,
        near=np.concatenate(
            [
                _words(action.frame, words, described=bool(description), task=task),
                _description(subject, described, task),
            ]
        ),
    )


@lru_cache(maxsize=1 << 16)
def match_of(choice: str, description: str, task: Task) -> tuple[float, ...]:
    """Return how a choice matches the task.

    The four numbers are: the share of its words that are in the task, the same for its description, the number of the
    task's words that both contain, and the number of its words in arguments that the task has as a phrase.
    """
    arguments = read_action(choice).arguments
    argument_words, description_words = (
        [word for argument in arguments for word in argument.words],
        content_of(description),
    )
    both = {word for word in (*argument_words, *description_words) if word in task.content}
    phrases = [argument.name for argument in arguments if f" {argument.name} " in task.phrase]
    return (
        _share(argument_words, task),
        _share(description_words, task),
        float(len(both)),
        float(sum(len(phrase.split()) for phrase in phrases)),
    )


def _share(words: Sequence[str], task: Task) -> float:
    return sum(word in task.content for word in words) / len(words) if words else 0.0


def _words(frame: str, words: tuple[str, ...], *, described: bool, task: Task) -> np.ndarray:
    """Return features of an action's words, uint64; if they are few, also their pairs with the task's words."""
    word_keys = keys_of(f"word {frame}", words[:OWN_WORDS])
    if described or not 0 < len(word_keys) <= 2:
        return word_keys
    return np.concatenate([word_keys, mix(word_keys[:, None], task_keys(task)[None]).ravel()])


def _description(subject: str, words: tuple[str, ...], task: Task) -> np.ndarray:
    """Return features of a description's words, uint64: alone, in pairs, and with content words of the task."""
    if not words:
        return np.zeros(0, dtype=np.uint64)
    word_keys = keys_of(f"about {subject}", words)
    first, second = np.triu_indices(len(words), 1)
    with_task = mix(word_keys[:, None], keys_of("task", tuple(task.content)[:TASK_WORDS])[None]).ravel()
    return np.concatenate([word_keys, mix(word_keys[first], word_keys[second]), with_task])


@lru_cache(maxsize=1 << 12)
def task_keys(task: Task) -> np.ndarray:
    """Return the hashes of a task's words, uint64."""
    return np.array([key("task", word) for word in task.words[:TASK_WORDS]], dtype=np.uint64)
