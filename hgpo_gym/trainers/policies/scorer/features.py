"""An admissible action in its moment as numbers: places of hashed features, the same on every machine.

Each action is described ever closer: by its *kind* (what is done, and how its arguments stand to the task); by its
*state* (also what was done with its arguments before, and whether it was taken itself); by its *signature* (also what
was read about them, how well its words match, what was chosen on this page). These are features, and so are
conjunctions of each with the *context*: the words of the task, what was done with things of the task, what else can be
done now, what was done last.

Where an environment says what its actions stand for, the name of each, how it stands to what the task speaks of, and
conjunctions of these with the place come with them, see `places.py`.

Actions of equal features have one row between them: `go to drawer 2` and `go to drawer 3`, where nothing is known of
either.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hgpo_gym.trainers.policies.base import Moment, Request
from hgpo_gym.trainers.policies.choosing import moment_of
from hgpo_gym.trainers.policies.scorer.episode import NOTHING, Episode, Episodes, kind_of, roles_of, told
from hgpo_gym.trainers.policies.scorer.places import nowhere, standing_of
from hgpo_gym.trainers.policies.scorer.words import Task, amounts, content_of, key, read_action

TASK_WORDS = 12
"""Words of the task that are conjoined; long instructions have no more."""
OWN_WORDS = 6
"""Words of an action that are."""
OFTEN = 4
"""An action that was taken more often counts as if it was taken so often."""
NEVER = 1000
"""Steps ago; more than any episode has."""


class Features(NamedTuple):
    """The features of the choices of one moment.

    Attributes:
        wide: int32[R, W], places of features, 0 for none; a row for each choice that differs.
        deep: int32[R, D], of the features that the small network reads.
        leaning: float32[R, 2], how often it was taken before (at most `OFTEN`), and how much the task speaks of it: a
            point for its first word, for each argument, and for the best description on the page.
        row: int64[A], the row of each choice.
    """

    wide: np.ndarray
    deep: np.ndarray
    leaning: np.ndarray
    row: np.ndarray


class Extractor:
    """Requests to features. It remembers episodes while their moments are in use.

    Args:
        wide: places of hashed features.
        deep: places of those that the small network reads.
    """

    def __init__(self, wide: int, deep: int):
        self._wide, self._deep = wide, deep
        self._episodes = Episodes()

    def __call__(self, requests: Sequence[Request]) -> list[Features]:
        """The features of the choices of each request. One by one they would be the same but for empty columns.

        Raises:
            CannotAnswerError: a request without choices, or without a moment.
        """
        seen = [self._look(request) for request in requests]
        counts = [len(one.rows) for one in seen]
        near, context = _padded([one.near for one in seen]), _padded([one.context[None] for one in seen])
        of_request = np.repeat(np.arange(len(seen)), counts)
        context = context[of_request]
        static = np.concatenate([one.static for one in seen])
        numbers = np.array([numbers for one in seen for numbers in one.rows], dtype=np.uint64)
        own = _own(static, numbers)
        leaning = np.stack([np.minimum(numbers[:, 4], OFTEN), static[:, 4]], axis=1).astype(np.float32)
        state = np.array([one.state for one in seen], dtype=np.uint64)[of_request, None]
        views = np.concatenate([own[:, :3], _mix(own[:, 1:2], state)], axis=1)
        beside = _padded([one.beside for one in seen])
        placed = _padded([one.placed[None] for one in seen])[of_request]
        wide = _places(
            np.concatenate([own, near, _crossed(views, context), beside, _crossed(beside, placed)], axis=1), self._wide
        )
        deep = _places(np.concatenate([own, context, beside, placed], axis=1), self._deep)
        ends = np.cumsum(counts)
        return [
            Features(
                wide[end - count : end],
                deep[end - count : end],
                leaning[end - count : end],
                np.array(one.row, dtype=np.int64),
            )
            for one, count, end in zip(seen, counts, ends.tolist(), strict=True)
        ]

    def _look(self, request: Request) -> "_Seen":
        moment = moment_of(request, "scorer")
        episode = self._episodes.at(moment)
        acts = request.choices == moment.actions
        page = page_of(request.choices, moment.descriptions if acts else (), episode.task)
        standing = standing_of(episode.places, moment) if acts and moment.descriptions else nowhere(request.choices)
        rows, row = _rows(episode, moment, page, standing.row)
        classes = [kind for kind, *_ in rows]
        beside = standing.own[[own for *_, own in rows]]
        context, state = _context(episode, moment, request, page)
        return _Seen(rows, row, page.static[classes], page.near[classes], context, state, beside, standing.place)


class _Seen(NamedTuple):
    """What a request comes to: the numbers of its rows (see `_own`), the row of each choice, what is always so of the
    rows, uint64[R, 5] and [R, M], the context uint64[X], its state, and what `Standing` has
    of the rows and the place."""

    rows: Sequence[tuple[int, ...]]
    row: list[int]
    static: np.ndarray
    near: np.ndarray
    context: np.ndarray
    state: int
    beside: np.ndarray
    placed: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Page:
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


def _rows(
    episode: Episode, moment: Moment, page: Page, standing: Sequence[int]
) -> tuple[Sequence[tuple[int, ...]], list[int]]:
    """The numbers of the rows, and the row of each choice."""
    here = episode.here.get(moment.actions, _NONE)
    chosen = episode.chosen.get(moment.actions, _NONE)
    times, last_time, known = episode.times, episode.last_time, episode.known
    ages = _ages(episode, page)
    rows: dict[tuple[int, ...], int] = {}
    row = []
    choices = zip(page.texts, page.descriptions, page.names, page.classes, standing, strict=True)
    for text, description, names, kind, stands in choices:
        if text in times:
            now = (
                kind,
                *_of_things(episode, names),
                ages[kind],
                _bucket(times[text]),
                _bucket(episode.step - last_time[text] + 1),
                4 * min(here[text], 2) + (min(chosen[description], 2) if description else 0),
                stands,
            )
        elif chosen or not known.isdisjoint(names):
            group = min(chosen[description], 2) if description else 0
            now = (kind, *_of_things(episode, names), ages[kind], 0, 0, group, stands)
        else:
            now = (kind, 0, 0, ages[kind], 0, 0, 0, stands)
        row.append(rows.setdefault(now, len(rows)))
    return list(rows), row


def _own(static: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Features of rows without the context; the first three are kind, state and signature.

    Args:
        static: uint64[R, 5], as in `Page`.
        numbers: uint64[R, 8], class, what was done with the arguments, what is known of them, age of the words, how
            often and how long ago it was taken, what was taken on this page, and its row in `Standing.own`.
    """
    kind, fine, frame, match, _ = static.T
    _, state, about, age, taken, since, on_page, _ = numbers.T
    once = np.minimum(taken, 1)
    before = _mix(_mix(kind, state), once)
    matching, about_kind = _mix(frame, match), _mix(kind, about)
    own = np.stack(
        [
            kind,
            before,
            _mix(_mix(before, about), _mix(match, on_page)),
            fine,
            _mix(fine, state),
            _mix(frame, state),
            about_kind,
            _mix(about_kind, state),
            _mix(kind, taken),
            _mix(kind, since),
            _mix(kind, on_page),
            matching,
            _mix(matching, on_page),
            _mix(frame, age),
            _mix(_mix(kind, age), once),
        ],
        axis=1,
    )
    return _mix(own, _slots(own.shape[1]))


_NONE: Counter[str] = Counter()


def _of_things(episode: Episode, names: Sequence[str]) -> tuple[int, int]:
    """What was done with things, and what is known of them; 0 for nothing."""
    things = [episode.thing(name) for name in names]
    states, abouts = [state for state, _ in things], [about for _, about in things]
    return key("state", *states) if any(states) else 0, key("about", *abouts) if any(abouts) else 0


def _ages(episode: Episode, page: Page) -> list[int]:
    """For each class how long ago all of its words had been in observations, and whether none of its frame is newer."""
    mentioned, step = episode.mentioned, episode.step
    ages = [step - min([mentioned.get(word, -NEVER) for word in words]) if words else NEVER for words in page.words]
    newest: dict[int, int] = {}
    for frame, age in zip(page.frames, ages, strict=True):
        if age < newest.get(frame, NEVER):
            newest[frame] = age
    return [
        0 if age >= NEVER else 2 + 2 * _bucket(age) + (age == newest[frame])
        for frame, age in zip(page.frames, ages, strict=True)
    ]


def _context(episode: Episode, moment: Moment, request: Request, page: Page) -> tuple[np.ndarray, int]:
    """What is the same for all choices, uint64[X], and what was done with things of the task in one number."""
    statuses: Counter[str] = Counter()
    for name, status in episode.status.items():
        if name in episode.found:
            statuses[status] += 1
    here = episode.here.get(moment.actions, _NONE)
    rest = {
        key("last", episode.last, min(episode.seen[told(moment.observation, moment.task)], 2)),
        key("step", _bucket(episode.step)),
        key("covered", int(8 * episode.best)),
        key("now", int(6 * episode.now), int(episode.now == episode.best)),
    }
    if episode.task.amount is not None and (told_of := amounts(told(moment.observation, moment.task))):
        rest.add(key("amounts", int(min(told_of) <= episode.task.amount), int(max(told_of) <= episode.task.amount)))
    rest.update([key("done", kind, min(count, 3)) for kind, count in episode.done.items()])
    rest.update([key("status", status, min(count, 2)) for status, count in statuses.items()])
    rest.update([key("can", kind, int(text in here)) for text, kind in page.matching])
    if request.role:
        rest.add(key("role", request.role))
    rest.update([key("said", text) for text in request.said])
    state = key("context", *sorted([f"{status} {min(count, 2)}" for status, count in statuses.items()]))
    context = np.array([*sorted(rest), state], dtype=np.uint64)
    return np.concatenate([task_keys(episode.task), context]), state


@lru_cache(maxsize=1 << 12)
def task_keys(task: Task) -> np.ndarray:
    """uint64: the words of a task."""
    return np.array([key("task", word) for word in task.words[:TASK_WORDS]], dtype=np.uint64)


class _Choice(NamedTuple):
    """What can be said of a choice by itself.

    Attributes:
        names: of its arguments.
        words: those that are compared.
        match: see `match_of`.
        matching: its kind, and a mark where it stands in the task as a phrase; empty where it has nothing to do with it.
        alike: equal for choices that differ in nothing here but their numbers.
        frame: as text.
        keys: of kind, fine and frame, see `Page`.
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
def page_of(choices: tuple[str, ...], descriptions: tuple[str, ...], task: Task) -> Page:
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
    return Page(
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
        near=_padded([one.near[None] for one, _, _ in distinct]),
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
    own = _keys(f"word {frame}", words[:OWN_WORDS])
    if described or not 0 < len(own) <= 2:
        return own
    return np.concatenate([own, _mix(own[:, None], task_keys(task)[None]).ravel()])


def _bucket(number: int) -> int:
    """0, 1, 2, 3, 4 and 5, 6 to 9, 10 to 19, and more, as 0 to 7."""
    return _BUCKETS[number] if number < len(_BUCKETS) else 7


_BUCKETS = (0, 1, 2, 3, 4, 4, *[5] * 4, *[6] * 10)


def _keys(name: str, texts: Sequence[str]) -> np.ndarray:
    return np.array([key(name, text) for text in texts], dtype=np.uint64)


@lru_cache
def _slots(count: int) -> np.ndarray:
    """uint64: a number for each of so many features that are about different things."""
    return np.array([key("slot", index) for index in range(count)], dtype=np.uint64)


def _padded(parts: Sequence[np.ndarray]) -> np.ndarray:
    """uint64: arrays of different width below one another, filled up with 0."""
    padded = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)), dtype=np.uint64)
    first = 0
    for part in parts:
        padded[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return padded


def _mix(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """uint64: a number for each pair, in this order; broadcast."""
    mixed = first * np.uint64(0x9E3779B97F4A7C15) + second
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed


def _crossed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """uint64[R, F * S]: each of the first with each of the second, 0 where either is."""
    pairs = _mix(first[:, :, None], second[:, None])
    pairs *= (first[:, :, None] != 0) & (second[:, None] != 0)
    return pairs.reshape(len(first), -1)


def _places(keys: np.ndarray, size: int) -> np.ndarray:
    """int32: places from 1 to size - 1, 0 for the key 0."""
    places = (keys >> np.uint64(33)).astype(np.int32) % np.int32(size - 1)
    places += keys != 0
    return places
