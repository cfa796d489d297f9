"""Memory: the history of an episode, as text for the policy and as context keys for credit assignment."""

from collections import deque
from typing import NamedTuple

import numpy as np

from hgpo_gym.memory.keys import KeyChain, KeyFunction, hash_text, key_function


class PastStep(NamedTuple):
    """An observation and the action after it."""

    observation: str
    action: str


class Context(NamedTuple):
    """The context of the current step.

    Attributes:
        observation: the current observation.
        admissible_actions: its admissible actions.
        history: the past steps that the policy reads, oldest first.
        step: the number of earlier steps in this episode.
        keys: int64[history_length + 1], see `hgpo_gym.memory.keys`.
        descriptions: the meaning of each admissible action; empty if the environment gives none.
    """

    observation: str
    admissible_actions: tuple[str, ...]
    history: tuple[PastStep, ...]
    step: int
    keys: np.ndarray
    descriptions: tuple[str, ...] = ()


class Memory:
    """The memory of one episode: `reset`, then `observe` and `record` in turn.

    Args:
        window: past steps that the policy reads: a number, 0 for none, None for the whole episode.
        history_length: K, how many past observations the context keys look back; independent of `window`.
        key: what counts as the observation in the keys: a name in `KEY_FUNCTIONS`, or a `KeyFunction`.

    Raises:
        ValueError: a negative length or an unknown key function.
    """

    def __init__(self, *, window: int | None = 2, history_length: int = 2, key: str | KeyFunction = "observation"):
        if window is not None and window < 0:
            raise ValueError(f"window={window}: choose 0 or more steps, or None for the whole episode.")
        if history_length < 0:
            raise ValueError(f"history_length={history_length}: choose 0 or more observations.")
        self.window, self.history_length = window, history_length
        self._key = key_function(key)
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new episode begins."""
        self._history: deque[PastStep] = deque(maxlen=self.window)
        self._chain = KeyChain(self.history_length)
        self._observation: str | None = None
        self._action_hash: int | None = None
        self._step = 0

    def observe(
        self, observation: str, admissible_actions: tuple[str, ...] = (), descriptions: tuple[str, ...] = ()
    ) -> Context:
        """Take in the next observation and return the context of its step.

        Descriptions of the admissible actions are used only in prompts. Raises RuntimeError if `record` is missing
        after the last call.
        """
        if self._observation is not None:
            raise RuntimeError("observe() was called twice without record(action) between.")
        self._observation = observation
        keys = self._chain.advance(hash_text(self._key.canonical(observation, admissible_actions)), self._action_hash)
        return Context(observation, admissible_actions, tuple(self._history), self._step, keys, descriptions)

    def record(self, action: str) -> None:
        """Take in the action of the current step. Raises RuntimeError before `observe`."""
        if self._observation is None:
            raise RuntimeError("record() was called before observe().")
        self._history.append(PastStep(self._observation, action))
        self._action_hash = hash_text(action) if self._key.with_action else None
        self._observation = None
        self._step += 1
