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
from typing import NamedTuple

import numpy as np

from hgpo_gym.policies.base import Request, StepContext
from hgpo_gym.policies.features.episode import Episode, Episodes, told
from hgpo_gym.policies.features.hashing import crossed, mix, padded, places_of, slots
from hgpo_gym.policies.features.page import ParsedPage, page_of, task_keys
from hgpo_gym.policies.features.places import nowhere, standing_of
from hgpo_gym.policies.features.words import amounts, key
from hgpo_gym.policies.scoring import step_context_of

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
        near, context = padded([one.near for one in seen]), padded([one.context[None] for one in seen])
        of_request = np.repeat(np.arange(len(seen)), counts)
        context = context[of_request]
        static = np.concatenate([one.static for one in seen])
        numbers = np.array([numbers for one in seen for numbers in one.rows], dtype=np.uint64)
        own = _own(static, numbers)
        leaning = np.stack([np.minimum(numbers[:, 4], OFTEN), static[:, 4]], axis=1).astype(np.float32)
        state = np.array([one.state for one in seen], dtype=np.uint64)[of_request, None]
        views = np.concatenate([own[:, :3], mix(own[:, 1:2], state)], axis=1)
        beside = padded([one.beside for one in seen])
        placed = padded([one.placed[None] for one in seen])[of_request]
        wide = places_of(
            np.concatenate([own, near, crossed(views, context), beside, crossed(beside, placed)], axis=1), self._wide
        )
        deep = places_of(np.concatenate([own, context, beside, placed], axis=1), self._deep)
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
        step_context = step_context_of(request, "features policy")
        episode = self._episodes.at(step_context)
        acts = request.choices == step_context.actions
        page = page_of(request.choices, step_context.descriptions if acts else (), episode.task)
        standing = (
            standing_of(episode.places, step_context)
            if acts and step_context.descriptions
            else nowhere(request.choices)
        )
        rows, row = _rows(episode, step_context, page, standing.row)
        classes = [kind for kind, *_ in rows]
        beside = standing.own[[own for *_, own in rows]]
        context, state = _context(episode, step_context, request, page)
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


def _rows(
    episode: Episode, step_context: StepContext, page: ParsedPage, standing: Sequence[int]
) -> tuple[Sequence[tuple[int, ...]], list[int]]:
    """The numbers of the rows, and the row of each choice."""
    here = episode.here.get(step_context.actions, _NONE)
    chosen = episode.chosen.get(step_context.actions, _NONE)
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
        static: uint64[R, 5], as in `ParsedPage`.
        numbers: uint64[R, 8], class, what was done with the arguments, what is known of them, age of the words, how
            often and how long ago it was taken, what was taken on this page, and its row in `Standing.own`.
    """
    kind, fine, frame, match, _ = static.T
    _, state, about, age, taken, since, on_page, _ = numbers.T
    once = np.minimum(taken, 1)
    before = mix(mix(kind, state), once)
    matching, about_kind = mix(frame, match), mix(kind, about)
    own = np.stack(
        [
            kind,
            before,
            mix(mix(before, about), mix(match, on_page)),
            fine,
            mix(fine, state),
            mix(frame, state),
            about_kind,
            mix(about_kind, state),
            mix(kind, taken),
            mix(kind, since),
            mix(kind, on_page),
            matching,
            mix(matching, on_page),
            mix(frame, age),
            mix(mix(kind, age), once),
        ],
        axis=1,
    )
    return mix(own, slots(own.shape[1]))


_NONE: Counter[str] = Counter()


def _of_things(episode: Episode, names: Sequence[str]) -> tuple[int, int]:
    """What was done with things, and what is known of them; 0 for nothing."""
    things = [episode.thing(name) for name in names]
    states, abouts = [state for state, _ in things], [about for _, about in things]
    return key("state", *states) if any(states) else 0, key("about", *abouts) if any(abouts) else 0


def _ages(episode: Episode, page: ParsedPage) -> list[int]:
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


def _context(episode: Episode, step_context: StepContext, request: Request, page: ParsedPage) -> tuple[np.ndarray, int]:
    """What is the same for all choices, uint64[X], and what was done with things of the task in one number."""
    statuses: Counter[str] = Counter()
    for name, status in episode.status.items():
        if name in episode.found:
            statuses[status] += 1
    here = episode.here.get(step_context.actions, _NONE)
    rest = {
        key("last", episode.last, min(episode.seen[told(step_context.observation, step_context.task)], 2)),
        key("step", _bucket(episode.step)),
        key("covered", int(8 * episode.best)),
        key("now", int(6 * episode.now), int(episode.now == episode.best)),
    }
    if episode.task.amount is not None and (told_of := amounts(told(step_context.observation, step_context.task))):
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


def _bucket(number: int) -> int:
    """0, 1, 2, 3, 4 and 5, 6 to 9, 10 to 19, and more, as 0 to 7."""
    return _BUCKETS[number] if number < len(_BUCKETS) else 7


_BUCKETS = (0, 1, 2, 3, 4, 4, *[5] * 4, *[6] * 10)
