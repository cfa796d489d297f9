"""A task as an agent with a memory meets it: a finite decision process, as arrays."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from hgpo_gym.memory.keys import KeyChain, hash_text, key_function
from hgpo_gym.memory.memory import PastStep

NOWHERE = -1
"""The next state where the episode ends, and where there is no such action."""


class Rules(Protocol):
    """An environment as pure functions on a hashable place. A place without admissible actions ends the episode."""

    @property
    def start(self) -> Any: ...
    def observation(self, place: Any) -> str: ...
    def admissible_actions(self, place: Any) -> tuple[str, ...]: ...
    def next_place(self, place: Any, action: str) -> Any: ...
    def reward(self, place: Any) -> float: ...


class Situation(NamedTuple):
    """What a policy decides on: the past steps that it reads, the current observation, the admissible actions."""

    history: tuple[PastStep, ...]
    observation: str
    admissible_actions: tuple[str, ...]


@dataclass
class Situations:
    """Every situation that a policy can meet, numbered: the rows of its table. Tasks share it, for a policy has to act
    alike in tasks that look alike."""

    rows: dict[Situation, int] = field(default_factory=dict)

    def row(self, situation: Situation) -> int:
        return self.rows.setdefault(situation, len(self.rows))

    @property
    def admissible(self) -> np.ndarray:
        """bool[M, A]: which actions each situation admits."""
        count = np.array([len(situation.admissible_actions) for situation in self.rows])
        return np.arange(count.max()) < count[:, None]


@dataclass(frozen=True)
class DecisionProcess:
    """The states of a task (where the agent is, what it remembers, what the context keys hold), the first at index 0.

    Attributes:
        situation: int64[S], the row of the policy's table.
        next_state: int64[S, A], A the most actions of any state; NOWHERE at the end of the episode.
        reward: float64[S, A].
        context_keys: int64[S, K + 1], as `Memory` makes them.
    """

    situation: np.ndarray
    next_state: np.ndarray
    reward: np.ndarray
    context_keys: np.ndarray

    @property
    def history_length(self) -> int:
        """K of the context keys."""
        return self.context_keys.shape[1] - 1


def unfold(rules: Rules, situations: Situations, *, window: int, history_length: int, key: str) -> DecisionProcess:
    """All states that can be reached. `window`, `history_length` and `key` are those of `Memory`; what the situations
    lack is added to them."""
    function = key_function(key)

    def look(place: Hashable, history: tuple[PastStep, ...], keys: tuple[int, ...], action: str | None) -> Any:
        """The state of an agent that arrives at `place` by `action`, with what was in its memory before."""
        chain = KeyChain(history_length)
        chain.keys = np.array(keys, dtype=np.int64).view(np.uint64)
        seen = function.canonical(rules.observation(place), rules.admissible_actions(place))
        action_hash = hash_text(action) if function.with_action and action is not None else None
        return place, history, tuple(chain.advance(hash_text(seen), action_hash).tolist())

    found = {look(rules.start, (), (0,) * (history_length + 1), None): 0}
    waiting = list(found)
    rows, transitions = [], []
    for state in waiting:  # grows meanwhile
        place, history, keys = state
        observation, actions = rules.observation(place), rules.admissible_actions(place)
        rows.append(situations.row(Situation(history, observation, actions)))
        ways = []
        for action in actions:
            there = rules.next_place(place, action)
            following = NOWHERE
            if rules.admissible_actions(there):
                past = (*history, PastStep(observation, action))
                after = look(there, past[max(0, len(past) - window) :], keys, action)
                following = found.setdefault(after, len(found))
                if following == len(waiting):
                    waiting.append(after)
            ways.append((following, rules.reward(there)))
        transitions.append(ways)
    width = max(map(len, transitions))
    padded = [ways + [(NOWHERE, 0.0)] * (width - len(ways)) for ways in transitions]
    return DecisionProcess(
        situation=np.array(rows),
        next_state=np.array([[following for following, _ in ways] for ways in padded]),
        reward=np.array([[reward for _, reward in ways] for ways in padded]),
        context_keys=np.array([keys for _, _, keys in waiting], dtype=np.int64),
    )
