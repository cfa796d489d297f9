"""Context: what a prompt shows at a step, and the context keys of the step."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

MANY_STEPS = 16
"""Past steps from which on a prompt is kept without a copy of them."""


class PastStep(NamedTuple):
    """An observation and the action after it."""

    observation: str
    action: str


class PastSteps(Sequence[PastStep]):
    """Past steps of an episode. The contexts of an episode share the list of steps and their formatted texts, so that
    each step is formatted once.

    Args:
        steps: the episode's steps; later ones may be added to the list.
        texts: by template of a past step, the formatted steps.
        start, stop: the range of `steps` that belongs to it.
    """

    __slots__ = ("_start", "_steps", "_stop", "_texts")

    def __init__(self, steps: list[PastStep], texts: dict[str, list[str]], start: int, stop: int):
        self._steps, self._texts, self._start, self._stop = steps, texts, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._steps[range(self._start, self._stop)[index]]
        part = range(self._start, self._stop)[index]
        if part.step == 1:
            return PastSteps(self._steps, self._texts, part.start, max(part.start, part.stop))
        return tuple(self._steps[number] for number in part)

    def __iter__(self) -> Iterator[PastStep]:
        return iter(self._steps[self._start : self._stop])

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)  # a process that gets one context needs no later steps

    def formatted(self, past_step: str) -> Sequence[str]:
        """Return each step in the form of a template with {observation}, {action} and {step} (1 is the first)."""
        texts = self._texts.setdefault(past_step, [])
        for number in range(len(texts), self._stop):
            texts.append(format_step(past_step, self._steps[number], number + 1))
        return texts[self._start : self._stop]

    def split(self, prompt: str, past_step: str) -> "str | SplitPrompt":
        """Return a prompt to keep: without a copy of the steps, if it shows them in this form and they are many."""
        if len(self) < MANY_STEPS:
            return prompt
        before, found, after = prompt.partition("".join(self.formatted(past_step)))
        return SplitPrompt(before, self._texts[past_step], self._start, self._stop, after) if found else prompt


class SplitPrompt:
    """A prompt as the texts around its past steps. All prompts of an episode share the steps' texts, so that what is
    kept of them grows with the episode's length, not with its square. `str` returns the prompt.

    Args:
        before, after: the texts around the past steps.
        texts: the formatted steps of the episode; later ones may be added to the list.
        start, stop: the steps that are shown.
    """

    __slots__ = ("_after", "_before", "_start", "_stop", "_texts")

    def __init__(self, before: str, texts: list[str], start: int, stop: int, after: str):
        self._before, self._texts, self._start, self._stop, self._after = before, texts, start, stop, after

    def __str__(self) -> str:
        return "".join((self._before, *self._texts[self._start : self._stop], self._after))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, str | SplitPrompt) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitPrompt, (self._before, self._texts, self._start, self._stop, self._after)


def format_step(past_step: str, step: PastStep, number: int) -> str:
    """Return a past step in the form of a template; `number` 1 is the episode's first."""
    return past_step.format(observation=step.observation, action=step.action, step=number)


class Written(NamedTuple):
    """What the agent wrote in a step.

    Attributes:
        texts: its responses in order, the action's last; several where roles respond in turn.
        tokens: the length of the last prompt and response together; 0 if unknown.
    """

    texts: Sequence[str] = ()
    tokens: int = 0


NOTHING_WRITTEN = Written()


class Context(NamedTuple):
    """The context of the current step.

    Attributes:
        observation: the current observation.
        admissible_actions: its admissible actions.
        history: the past steps that the policy reads, oldest first.
        step: the number of earlier steps in this episode.
        keys: int64[history_length + 1], see `hgpo_gym.memory.keys`.
        descriptions: the meaning of each admissible action; empty if the environment gives none.
        conversation: earlier prompts and responses stand before the prompt, as messages of a chat.
        state: the text that `keys[0]` is the hash of.
        due: notes are written before the action, in a response of their own; None where they never are.
    """

    observation: str
    admissible_actions: tuple[str, ...]
    history: Sequence[PastStep]
    step: int
    keys: np.ndarray
    descriptions: tuple[str, ...] = ()
    conversation: bool = False
    state: str = ""
    due: bool | None = None
