"""The hashed features of an admissible action in its step, the same on every machine.

Each action is described at three levels of detail. Its *kind* is its frame, with the relation of its arguments to the
task. Its *state* adds earlier actions on its arguments, and whether the action itself was taken. Its *signature* adds
the texts read about them, the match of its words, and the choices made on this page. All of these are features, and so
are their conjunctions with the *context*: the words of the task, the actions on things of the task, the other
admissible actions, and the last action.

If an environment describes its actions, further features are the name of each, its relation to the task's terms, and
conjunctions of these with the place, see `places.py`.

Actions with equal features share one row: `go to drawer 2` and `go to drawer 3`, if nothing is known of either.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hgpo_gym.policies.base import Request, StepContext
from hgpo_gym.policies.features.episode import Episode, Episodes, keys_of_things, without_task
from hgpo_gym.policies.features.hashing import crossed, mix, padded, places_of, slots
from hgpo_gym.policies.features.page import ParsedPage, page_of, task_keys
from hgpo_gym.policies.features.places import nowhere, standing_of
from hgpo_gym.policies.features.words import amounts, key
from hgpo_gym.policies.scoring import step_context_of

OFTEN = 4
"""The cap for the count of an action."""
NEVER = 1000
"""An age in steps, larger than any episode is long."""


class Features(NamedTuple):
    """The features of the choices of one step.

    Attributes:
        wide: int32[R, W], feature ids, 0 for none; a row for each distinct choice.
        deep: int32[R, D], the feature ids for the small network.
        leaning: float32[R, 2], its count so far (at most `OFTEN`), and its points for matching the task: one for its
            first word, for each argument, and for the best description on the page.
        row: int64[A], the row of each choice.
    """

    wide: np.ndarray
    deep: np.ndarray
    leaning: np.ndarray
    row: np.ndarray


class Extractor:
    """Computes features of requests. It remembers episodes while their steps are in use.

    Args:
        wide: the number of feature ids.
        deep: the number of feature ids for the small network.
        description_words: the most words of a description that form features.
    """

    def __init__(self, wide: int, deep: int, description_words: int = 0):
        self._wide, self._deep, self._description_words = wide, deep, description_words
        self._episodes = Episodes()

    def __call__(self, requests: Sequence[Request]) -> list[Features]:
        """Return the features of each request's choices. They do not depend on the batch, except for empty columns.

        Raises:
            CannotRespondError: a request without choices, or without a step.
        """
        moments = [self._look(request) for request in requests]
        counts = [len(moment.rows) for moment in moments]
        of_request = np.repeat(np.arange(len(moments)), counts)
        context = padded([moment.context[None] for moment in moments])[of_request]
        numbers = np.array([numbers for moment in moments for numbers in moment.rows], dtype=np.uint64)
        of_class = _stacked_rows([moment.static for moment in moments], numbers[:, 0], of_request)
        static = np.concatenate([moment.static for moment in moments])[of_class]
        near = padded([moment.near for moment in moments])[of_class]
        row_features = _row_features(static, numbers)
        leaning = np.stack([np.minimum(numbers[:, 4], OFTEN), static[:, 4]], axis=1).astype(np.float32)
        state = np.array([moment.state for moment in moments], dtype=np.uint64)[of_request, None]
        views = np.concatenate([row_features[:, :3], mix(row_features[:, 1:2], state)], axis=1)
        of_standing = _stacked_rows([moment.beside for moment in moments], numbers[:, 7], of_request)
        beside = padded([moment.beside for moment in moments])[of_standing]
        placed = padded([moment.placed[None] for moment in moments])[of_request]
        wide = places_of(
            np.concatenate([row_features, near, crossed(views, context), beside, crossed(beside, placed)], axis=1),
            self._wide,
        )
        deep = places_of(np.concatenate([row_features, context, beside, placed], axis=1), self._deep)
        offsets = np.cumsum(counts)
        return [
            Features(
                wide[end - count : end],
                deep[end - count : end],
                leaning[end - count : end],
                np.array(moment.row, dtype=np.int64),
            )
            for moment, count, end in zip(moments, counts, offsets.tolist(), strict=True)
        ]

    def _look(self, request: Request) -> "_Seen":
        step_context = step_context_of(request, "features policy")
        episode = self._episodes.at(step_context)
        acts = request.choices == step_context.actions
        page = page_of(
            request.choices, step_context.descriptions if acts else (), episode.task, self._description_words
        )
        standing = (
            standing_of(episode.places, step_context)
            if acts and step_context.descriptions
            else nowhere(request.choices)
        )
        rows, row = _rows(episode, step_context, page, standing.row)
        context, state = _context(episode, step_context, request, page)
        return _Seen(rows, row, page.static, page.near, context, state, standing.distinct, standing.place)


class _Seen(NamedTuple):
    """The features of a request before conjunctions: the numbers of its rows (see `_row_features`), the row of each
    choice, the fixed features of classes, uint64[C, 5] and [C, M], the context uint64[X], its state, and the features
    of choices and place in `Standing`."""

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
    """Return the numbers of the rows, and the row of each choice."""
    page_counts = episode.by_page.get(step_context.actions, _NONE)
    chosen = episode.chosen.get(step_context.actions, _NONE)
    times, last_time = episode.times, episode.last_time
    ages = _ages(episode, page)
    pairs = list(zip(page.classes, standing, strict=True))
    remembered = set(range(len(pairs))) if chosen else _remembered(episode, page)
    # Choices that nothing is remembered about differ by class and place alone.
    others = dict.fromkeys(pair for choice, pair in enumerate(pairs) if choice not in remembered)
    index_of = dict(zip(others, range(len(others)), strict=True))
    rows = {(kind, 0, 0, ages[kind], 0, 0, 0, place): index for (kind, place), index in index_of.items()}
    row = [index_of.get(pair, 0) for pair in pairs]
    for choice in sorted(remembered):
        text, description, (kind, place) = page.texts[choice], page.descriptions[choice], pairs[choice]
        on_page = min(chosen[description], 2) if description else 0
        count = age = 0
        if text in times:
            count, age = _bucket(times[text]), _bucket(episode.step - last_time[text] + 1)
            on_page += 4 * min(page_counts[text], 2)
        state, about = _of_things(episode, page.names[choice])
        row[choice] = rows.setdefault((kind, state, about, ages[kind], count, age, on_page, place), len(rows))
    return list(rows), row


def _row_features(static: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return features of rows without the context; the first three are kind, state and signature.

    Args:
        static: uint64[R, 5], as in `ParsedPage`.
        numbers: uint64[R, 8]: class, actions on the arguments, knowledge about them, age of the words, count and age of
            the action, actions on this page, and the row in `Standing.distinct`.
    """
    kind, fine, frame, match, _ = static.T
    _, state, about, age, times_taken, since, on_page, _ = numbers.T
    once = np.minimum(times_taken, 1)
    before = mix(mix(kind, state), once)
    matching, about_kind = mix(frame, match), mix(kind, about)
    features = np.stack(
        [
            kind,
            before,
            mix(mix(before, about), mix(match, on_page)),
            fine,
            mix(fine, state),
            mix(frame, state),
            about_kind,
            mix(about_kind, state),
            mix(kind, times_taken),
            mix(kind, since),
            mix(kind, on_page),
            matching,
            mix(matching, on_page),
            mix(frame, age),
            mix(mix(kind, age), once),
        ],
        axis=1,
    )
    return mix(features, slots(features.shape[1]))


def _remembered(episode: Episode, page: ParsedPage) -> set[int]:
    """Return the choices that were taken before, or that have a thing of an earlier action."""
    texts = page.choices_of.keys() & episode.remembered
    return {choice for text in texts for choice in page.choices_of[text]}


def _stacked_rows(parts: Sequence[np.ndarray], rows: np.ndarray, of_request: np.ndarray) -> np.ndarray:
    """Return the indices in stacked parts, int64[R], of rows that are counted within the part of their request."""
    firsts = np.cumsum([0, *map(len, parts[:-1])])
    return firsts[of_request] + rows.astype(np.int64)


_NONE: Counter[str] = Counter()


def _of_things(episode: Episode, names: Sequence[str]) -> tuple[int, int]:
    """Return hashes of the actions on things, and of the knowledge about them; 0 for nothing."""
    if len(names) == 1:
        return episode.thing(names[0])[2]
    things = [episode.thing(name) for name in names]
    return keys_of_things(tuple(state for state, _, _ in things), tuple(about for _, about, _ in things))


def _ages(episode: Episode, page: ParsedPage) -> list[int]:
    """Return for each class the age of its words in observations, with a mark if none of its frame is newer."""
    mentioned, step = episode.mentioned, episode.step
    # A word that never appeared makes the age at least NEVER.
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
    """Return the features that all choices share, uint64[X], and a hash of the actions on things of the task."""
    statuses: Counter[str] = Counter()
    for name, status in episode.status.items():
        if name in episode.found:
            statuses[status] += 1
    page_counts = episode.by_page.get(step_context.actions, _NONE)
    rest = {
        key("last", episode.last, min(episode.seen[without_task(step_context.observation, step_context.task)], 2)),
        key("step", _bucket(episode.step)),
        key("covered", int(8 * episode.best)),
        key("now", int(6 * episode.now), int(episode.now == episode.best)),
    }
    if episode.task.amount is not None and (
        observed_amounts := amounts(without_task(step_context.observation, step_context.task))
    ):
        rest.add(
            key(
                "amounts",
                int(min(observed_amounts) <= episode.task.amount),
                int(max(observed_amounts) <= episode.task.amount),
            )
        )
    rest.update([key("done", kind, min(count, 3)) for kind, count in episode.done.items()])
    rest.update([key("status", status, min(count, 2)) for status, count in statuses.items()])
    rest.update([key("can", kind, int(text in page_counts)) for text, kind in page.matching])
    if request.role:
        rest.add(key("role", request.role))
    rest.update([key("said", text) for text in request.team_messages])
    state = key("context", *sorted([f"{status} {min(count, 2)}" for status, count in statuses.items()]))
    context = np.array([*sorted(rest), state], dtype=np.uint64)
    return np.concatenate([task_keys(episode.task), context]), state


def _bucket(number: int) -> int:
    """Return the bucket 0 to 7 of a number: 0, 1, 2, 3, 4 to 5, 6 to 9, 10 to 19, and more."""
    return _BUCKETS[number] if number < len(_BUCKETS) else 7


_BUCKETS = (0, 1, 2, 3, 4, 4, *[5] * 4, *[6] * 10)
