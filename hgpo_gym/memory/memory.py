"""Memory: the history of an episode, as text for the policy and as context keys for credit assignment.

`Memory` has what every form of memory shares; the forms are in `hgpo_gym.memory.forms`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.memory.keys import KeyChain, KeyFunction, hash_text, key_function
from hgpo_gym.memory.tools import MALFORMED_CALL


class PastStep(NamedTuple):
    """An observation and the action after it."""

    observation: str
    action: str


class WholeHistory(Sequence[PastStep]):
    """The past steps of an episode at one of its steps. The contexts of an episode share the steps and their texts, so
    that each step is formatted once.

    Args:
        steps: the episode's steps; later ones may be added to the list.
        texts: by template of a past step, the formatted steps.
        start, stop: the steps that are seen.
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
            return WholeHistory(self._steps, self._texts, part.start, max(part.start, part.stop))
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


def format_step(past_step: str, step: PastStep, number: int) -> str:
    """Return a past step in the form of a template; `number` 1 is the episode's first."""
    return past_step.format(observation=step.observation, action=step.action, step=number)


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
    """

    observation: str
    admissible_actions: tuple[str, ...]
    history: Sequence[PastStep]
    step: int
    keys: np.ndarray
    descriptions: tuple[str, ...] = ()
    conversation: bool = False
    state: str = ""


class Memory:
    """The memory of one episode: `reset`, then `observe` and `record` in turn.

    This form shows no history; other forms derive from it. A form has two sides:

    - Prompt side: override `show`, which fills in what the next prompt shows beside the observation. `past_steps` has
      all steps so far.
    - Key side: override `state`, the text that context keys compare; by default the observation as `key` sees it.

    A form with state of its own also extends `reset`, and `record` to update it.

    Args:
        history_length: K, how many past observations the context keys look back; independent of what the prompt shows.
        key: what counts as the observation in the keys: a name in `KEY_FUNCTIONS`, or a `KeyFunction`.

    Raises:
        ValueError: a negative length or an unknown key function.
    """

    def __init__(self, *, history_length: int = 2, key: str | KeyFunction = "observation"):
        if history_length < 0:
            raise ValueError(f"history_length={history_length}: choose 0 or more observations.")
        self.history_length = history_length
        self.key = key_function(key)
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new episode begins."""
        self._steps: list[PastStep] = []
        self._texts: dict[str, list[str]] = {}
        self._chain = KeyChain(self.history_length)
        self._observation: str | None = None
        self._action_hash: int | None = None
        self._reason = ""

    def observe(
        self, observation: str, admissible_actions: tuple[str, ...] = (), descriptions: tuple[str, ...] = ()
    ) -> Context:
        """Take in the next observation and return the context of its step.

        After a malformed tool call, the observation begins with the reason. Descriptions of the admissible actions are
        used only in prompts. Raises RuntimeError if `record` is missing after the last call.
        """
        if self._observation is not None:
            raise RuntimeError("observe() was called twice without record(action) between.")
        observation = self._reason + observation
        self._observation = observation
        state = self.state(observation, admissible_actions)
        keys = self._chain.advance(hash_text(state), self._action_hash)
        return self.show(
            Context(observation, admissible_actions, (), len(self._steps), keys, descriptions, state=state)
        )

    def record(self, action: str) -> None:
        """Take in the action of the current step. Raises RuntimeError before `observe`."""
        if self._observation is None:
            raise RuntimeError("record() was called before observe().")
        self._steps.append(PastStep(self._observation, action))
        self._action_hash = hash_text(action) if self.key.with_action else None
        self._reason = f"{action}\n" if action.startswith(MALFORMED_CALL) else ""
        self._observation = None

    def past_steps(self, most: int | None = None) -> Sequence[PastStep]:
        """Return the last `most` steps, oldest first; None returns all. A step is formatted for prompts only once."""
        stop = len(self._steps)
        return WholeHistory(self._steps, self._texts, 0 if most is None else max(0, stop - most), stop)

    def show(self, context: Context) -> Context:
        """Return the context with what the prompt shows beside the observation: by default nothing."""
        return context

    def state(self, observation: str, admissible_actions: tuple[str, ...]) -> str:
        """Return the text that the context keys of the current step compare."""
        return self.key.canonical(observation, admissible_actions)
