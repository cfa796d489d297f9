"""The memory of an episode: actions by thing, texts by place, and the step at which each word appeared."""

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
    key,
    read_action,
    read_task,
    tokens,
)

NOTHING, EARLIER, LAST = "-", "e", "l"
"""The roles of an argument: not in the task, one of its earlier content words, its last one."""
NAMED = "n"
"""The task has the first word of an action."""


class Episode:
    """The memory of one episode, updated step by step.

    A *thing* is the full name of an argument. Things that have a word of the task are *wanted*.

    Attributes:
        step: the number of actions so far.
        times, last_time: the count of each action, and the step at which it was last taken.
        by_page: the count of each action, by page: a list of admissible actions.
        chosen: the count of each description's actions, by page.
        status: the kind of the last action on each thing, and the thing's position in it.
        visits: the number of actions on each thing.
        touched: the things of the last action.
        found: for each wanted thing, the things of the action after which a text last mentioned it.
        holds: the inverse: the wanted things that were last found at each thing.
        coverage: for each thing, the share of the task's words in the text after the last action on it.
        now: the same share in the present text.
        best: the largest share so far.
        done: the count of each kind of action that matches the task.
        last: the kind of the last action.
        seen: the count of each observation.
        mentioned: the last step at which each word was in an observation.
        known: the things of all actions.
        remembered: these things, and the actions.
        places: the place, if the environment describes its actions.
    """

    def __init__(self, step_context: StepContext):
        self.task = read_task(step_context.task)
        self.step = 0
        self.times: Counter[str] = Counter()
        self.last_time: dict[str, int] = {}
        self.by_page: dict[tuple[str, ...], Counter[str]] = {}
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
        self.remembered: set[str] = set()
        self.places = Places(self.task)
        self._things: dict[str, tuple[str, str, tuple[int, int]]] = {}
        self._read(step_context)

    def advance(self, step_context: StepContext) -> None:
        """Update the memory by the last action and its result."""
        assert step_context.before is not None
        action, page = step_context.action, step_context.before.actions
        self.step += 1
        self.times[action] += 1
        self.last_time[action] = self.step
        self.by_page.setdefault(page, Counter())[action] += 1
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
        self.remembered |= self.touched | {action}
        share = self._read(step_context)
        for name in self.touched:
            self.coverage[name] = share

    def thing(self, name: str) -> tuple[str, str, tuple[int, int]]:
        """Return the actions on a thing and the knowledge about it, as texts, empty for nothing, and as hashes."""
        if (thing := self._things.get(name)) is None:
            state, about = self._thing(name) if name in self.known else ("", "")
            thing = self._things[name] = (state, about, keys_of_things((state,), (about,)))
        return thing

    def _thing(self, name: str) -> tuple[str, str]:
        share = self.coverage[name]
        held = sorted({f"{role}:{self.status.get(item, '')}" for item, role in self.holds.get(name, {}).items()})
        return (
            f"{self.status[name]} {min(self.visits[name], 3)}{' now' if name in self.touched else ''}",
            " ".join((f"{int(share * 5)}{'!' if share == self.best else ''}", *held)),
        )

    def _read(self, step_context: StepContext) -> float:
        text = without_task(step_context.observation, step_context.task)
        self.seen[text] += 1
        if step_context.descriptions:
            self.places.see(step_context, text)
        for word in content_of(text):
            self.mentioned[word] = self.step
        for name, role in task_things(text, self.task):
            sources = self.touched - {name}
            # An action on the thing itself does not show where it was found.
            if name in self.found and not sources:
                continue
            earlier = self.found.get(name, frozenset())
            self._forget(earlier | sources)
            for thing in earlier:
                self.holds[thing].pop(name, None)
            self.found[name] = sources
            for thing in sources:
                self.holds.setdefault(thing, {})[name] = role
        share = self.now = covered(text, self.task)
        if share > self.best:
            self.best = share
            self._things.clear()
        return share

    def _forget(self, names: Iterable[str]) -> None:
        """Clear the cached texts of these things, whose knowledge has changed."""
        for name in names:
            self._things.pop(name, None)


class Episodes:
    """The memories of steps that are in use. A memory lives no longer than its step."""

    def __init__(self) -> None:
        self._episodes: WeakKeyDictionary[StepContext, Episode] = WeakKeyDictionary()

    def at(self, step_context: StepContext) -> Episode:
        """Return the memory at a step: that of an earlier step is advanced, or one is made from the first step on."""
        if (episode := self._episodes.get(step_context)) is not None:
            return episode
        chain = [step_context]
        # Walk back to the latest step with a memory. It is popped, because advancing changes it.
        while (before := chain[-1].before) is not None and (episode := self._episodes.pop(before, None)) is None:
            chain.append(before)
        if episode is None:
            episode = Episode(chain.pop())
        for later in reversed(chain):
            episode.advance(later)
        self._episodes[step_context] = episode
        return episode


@lru_cache(maxsize=1 << 14)
def keys_of_things(states: tuple[str, ...], abouts: tuple[str, ...]) -> tuple[int, int]:
    """Return hashes of the actions on things, and of the knowledge about them; 0 for nothing."""
    return key("state", *states) if any(states) else 0, key("about", *abouts) if any(abouts) else 0


@lru_cache(maxsize=1 << 14)
def without_task(observation: str, task: str) -> str:
    """Return an observation without the instruction, which many observations repeat."""
    return observation.replace(task, " ") if task else observation


@lru_cache(maxsize=1 << 14)
def covered(text: str, task: Task) -> float:
    """Return the share of the task's content words that are in a text."""
    return sum(word in task.content for word in content_of(text)) / max(1, len(task.content))


@lru_cache(maxsize=1 << 16)
def task_things(text: str, task: Task) -> tuple[tuple[str, str], ...]:
    """Return the things in a text that have a word of the task: names (with the next number, if any) and roles."""
    found, words = {}, tokens(text)
    for word, after in zip(words, [*words, ""][1:], strict=True):
        if word in task.content:
            name = f"{word} {after}" if is_number(after) else word
            found[name] = role_of(Argument(name, (word,)), task)
    return tuple(found.items())


@lru_cache(maxsize=1 << 16)
def role_of(argument: Argument, task: Task) -> str:
    """Return `NOTHING`, `EARLIER` or `LAST`, by the last of the argument's words in the task. A measure, like `16 oz`,
    must be in the task verbatim."""
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
    """Return the frame of an action with the roles of its arguments, and a mark if the task has its first word."""
    named = NAMED if action.frame.split(" ", 1)[0] in task.content else NOTHING
    return " ".join((action.frame, named, *roles_of(action, task)))
