"""What is remembered of an episode: what was done with which thing, what was read where, what came up when."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from weakref import WeakKeyDictionary

from hgpo_gym.policies.base import StepContext
from hgpo_gym.policies.features.places import Places
from hgpo_gym.policies.features.words import (
    Argument,
    ParsedAction,
    Task,
    content_of,
    is_number,
    read_action,
    read_task,
    tokens,
)

NOTHING, EARLIER, LAST = "-", "e", "l"
"""How an argument stands to the task: not in it, one of its earlier content words, the last one."""
NAMED = "n"
"""The task has the first word of an action."""


class Episode:
    """The memory of one episode, taken forward step by step.

    A *thing* is the full name of an argument. Things that have a word of the task are *wanted*.

    Attributes:
        step: actions so far.
        times, last_time: of each action, how often it was taken and at which step last.
        here: by page, a list of admissible actions: how often each was taken on it.
        chosen: by page, how often an action with a description was taken on it.
        status: of each thing, the kind of the last action about it and its place there.
        visits: of each thing, how many actions were about it.
        touched: the things that the last action was about.
        found: of each wanted thing, those that the action was about after which a text mentioned it last.
        holds: the inverse, the wanted things that were last found by each thing.
        coverage: of each thing, the share of the task's words in the text after the last action about it.
        now: the same of the present text.
        best: the largest share so far.
        done: how often each kind of action that has to do with the task was taken.
        last: the kind of the last action.
        seen: how often each observation was seen.
        mentioned: the step at which a word stood in an observation last.
        known: the things that actions were about.
        places: where it is, if it says what its actions stand for.
    """

    def __init__(self, step_context: StepContext):
        self.task = read_task(step_context.task)
        self.step = 0
        self.times: Counter[str] = Counter()
        self.last_time: dict[str, int] = {}
        self.here: dict[tuple[str, ...], Counter[str]] = {}
        self.chosen: dict[tuple[str, ...], Counter[str]] = {}
        self.status: dict[str, str] = {}
        self.visits: Counter[str] = Counter()
        self.touched: frozenset[str] = frozenset()
        self.found: dict[str, frozenset[str]] = {}
        self.holds: dict[str, dict[str, str]] = {}
        self.coverage: dict[str, float] = {}
        self.now = self.best = 0.0
        self.done: Counter[str] = Counter()
        self.last = ""
        self.seen: Counter[str] = Counter()
        self.mentioned: dict[str, int] = {}
        self.known: set[str] = set()
        self.places = Places(self.task)
        self._things: dict[str, tuple[str, str]] = {}
        self._read(step_context)

    def advance(self, step_context: StepContext) -> None:
        """Take in what the last action has led to."""
        assert step_context.before is not None
        action, page = step_context.action, step_context.before.actions
        self.step += 1
        self.times[action] += 1
        self.last_time[action] = self.step
        self.here.setdefault(page, Counter())[action] += 1
        if step_context.before.descriptions and action in page:
            self.chosen.setdefault(page, Counter())[step_context.before.descriptions[page.index(action)]] += 1
        parts = read_action(action)
        kind = kind_of(parts, self.task)
        self.last = kind
        if any(role != NOTHING for role in roles_of(parts, self.task)):
            self.done[kind] += 1
        before, self.touched = self.touched, frozenset(argument.name for argument in parts.arguments)
        self._forget(before | self.touched)
        for place, argument in enumerate(parts.arguments):
            self.status[argument.name] = f"{kind}#{place}"
            self.visits[argument.name] += 1
            self._forget(self.found.get(argument.name, ()))
        self.known |= self.touched
        share = self._read(step_context)
        for name in self.touched:
            self.coverage[name] = share

    def thing(self, name: str) -> tuple[str, str]:
        """What was done with a thing, and what is known of it; empty for nothing."""
        if (thing := self._things.get(name)) is None:
            thing = self._things[name] = self._thing(name) if name in self.known else ("", "")
        return thing

    def _thing(self, name: str) -> tuple[str, str]:
        share = self.coverage[name]
        held = sorted({f"{role}:{self.status.get(other, '')}" for other, role in self.holds.get(name, {}).items()})
        return (
            f"{self.status[name]} {min(self.visits[name], 3)}{' now' if name in self.touched else ''}",
            " ".join((f"{int(share * 5)}{'!' if share == self.best else ''}", *held)),
        )

    def _read(self, step_context: StepContext) -> float:
        text = told(step_context.observation, step_context.task)
        self.seen[text] += 1
        if step_context.descriptions:
            self.places.see(step_context, text)
        for word in content_of(text):
            self.mentioned[word] = self.step
        for name, role in wanted_things(text, self.task):
            others = self.touched - {name}
            if name in self.found and not others:
                continue
            earlier = self.found.get(name, frozenset())
            self._forget(earlier | others)
            for thing in earlier:
                self.holds[thing].pop(name, None)
            self.found[name] = others
            for thing in others:
                self.holds.setdefault(thing, {})[name] = role
        share = self.now = covered(text, self.task)
        if share > self.best:
            self.best = share
            self._things.clear()
        return share

    def _forget(self, names: Iterable[str]) -> None:
        """What is known of these things has changed."""
        for name in names:
            self._things.pop(name, None)


class Episodes:
    """The memory at moments that are asked for, kept along with them."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[StepContext, Episode] = WeakKeyDictionary()

    def at(self, step_context: StepContext) -> Episode:
        """The memory at a moment; made by taking the one of the moment before forward, or from the first moment on."""
        if (episode := self._kept.get(step_context)) is not None:
            return episode
        chain = [step_context]
        while (before := chain[-1].before) is not None and (episode := self._kept.pop(before, None)) is None:
            chain.append(before)
        if episode is None:
            episode = Episode(chain.pop())
        for later in reversed(chain):
            episode.advance(later)
        self._kept[step_context] = episode
        return episode


@lru_cache(maxsize=1 << 14)
def told(observation: str, task: str) -> str:
    """An observation without the instruction, which many repeat."""
    return observation.replace(task, " ") if task else observation


@lru_cache(maxsize=1 << 14)
def covered(text: str, task: Task) -> float:
    """The share of the task's content words that a text has."""
    return sum(word in task.content for word in content_of(text)) / max(1, len(task.content))


@lru_cache(maxsize=1 << 16)
def wanted_things(text: str, task: Task) -> tuple[tuple[str, str], ...]:
    """The things in a text that have a word of the task, by name (with the number behind it, if there is one), and
    their roles."""
    found, words = {}, tokens(text)
    for word, after in zip(words, [*words, ""][1:], strict=True):
        if word in task.content:
            name = f"{word} {after}" if is_number(after) else word
            found[name] = role_of(Argument(name, (word,)), task)
    return tuple(found.items())


@lru_cache(maxsize=1 << 16)
def role_of(argument: Argument, task: Task) -> str:
    """`NOTHING`, `EARLIER` or `LAST`; that of the last of its words that the task has. A measure, `16 oz`, has to stand
    there as it is."""
    if is_number(argument.name.split(" ", 1)[0]):
        return EARLIER if f" {argument.name} " in task.phrase else NOTHING
    places = [task.content[word] for word in argument.words if word in task.content]
    if not places:
        return NOTHING
    return LAST if max(places) == len(task.content) - 1 else EARLIER


@lru_cache(maxsize=1 << 16)
def roles_of(action: ParsedAction, task: Task) -> tuple[str, ...]:
    return tuple(role_of(argument, task) for argument in action.arguments)


@lru_cache(maxsize=1 << 16)
def kind_of(action: ParsedAction, task: Task) -> str:
    """The frame of an action with the roles of its arguments, and whether the task has its first word."""
    named = NAMED if action.frame.split(" ", 1)[0] in task.content else NOTHING
    return " ".join((action.frame, named, *roles_of(action, task)))
