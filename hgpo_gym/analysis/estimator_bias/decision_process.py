"""A task as an agent with a memory meets it: a finite decision process, as arrays."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from hgpo_gym.memory.keys import KeyChain, hash_text, key_function
from hgpo_gym.memory.memory import PastStep

NOWHERE = -1
"""The next state where the episode ends, and where there is no such action."""


class Dynamics(Protocol):
    """An environment as pure functions on a hashable place. A place without admissible actions ends the episode.

    `outcomes` says where an action may lead, and how probably.
    """

    @property
    def start(self) -> Any: ...
    def observation(self, place: Any) -> str: ...
    def admissible_actions(self, place: Any) -> tuple[str, ...]: ...
    def outcomes(self, place: Any, action: str) -> Mapping[Any, float]: ...
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
        probability: float64[S, A, B], of each outcome; A the most actions of any state, B the most outcomes of any
            action (1 in a deterministic environment). 0 where there is no such action or outcome.
        next_state: int64[S, A, B]; NOWHERE at the end of the episode.
        reward: float64[S, A, B].
        context_keys: int64[S, K + 1], as `Memory` makes them.
        next_keys: int64[S, A, B, K + 1], those of what an outcome shows, the end of the episode included.
        action_key: int64[S, A], the hash of the action's text.
    """

    situation: np.ndarray
    probability: np.ndarray
    next_state: np.ndarray
    reward: np.ndarray
    context_keys: np.ndarray
    next_keys: np.ndarray
    action_key: np.ndarray

    @property
    def history_length(self) -> int:
        """K of the context keys."""
        return self.context_keys.shape[1] - 1


def unfold(rules: Dynamics, situations: Situations, *, window: int, history_length: int, key: str) -> DecisionProcess:
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
    rows: list[int] = []
    ways: list[_Way] = []
    for number, state in enumerate(waiting):  # grows meanwhile
        place, history, keys = state
        observation, actions = rules.observation(place), rules.admissible_actions(place)
        rows.append(situations.row(Situation(history, observation, actions)))
        for choice, action in enumerate(actions):
            past = (*history, PastStep(observation, action))
            for outcome, (there, probability) in enumerate(rules.outcomes(place, action).items()):
                after = look(there, past[max(0, len(past) - window) :], keys, action)
                following = NOWHERE
                if rules.admissible_actions(there):
                    following = found.setdefault(after, len(found))
                    if following == len(waiting):
                        waiting.append(after)
                where = number, choice, outcome
                ways.append(_Way(where, hash_text(action), probability, following, rules.reward(there), after[2]))
    return _arrays(rows, [keys for _, _, keys in waiting], ways)


class _Way(NamedTuple):
    """What an action may lead to: `where` numbers the state, the action and the outcome."""

    where: tuple[int, int, int]
    action_hash: int
    probability: float
    next_state: int
    reward: float
    next_keys: tuple[int, ...]


def _arrays(rows: list[int], keys: list[tuple[int, ...]], ways: list[_Way]) -> DecisionProcess:
    where = tuple(np.array([way.where for way in ways]).T)
    shape = len(rows), int(where[1].max()) + 1, int(where[2].max()) + 1

    def table(values: list[Any], otherwise: float, dtype: type) -> np.ndarray:
        filled: np.ndarray = np.full(shape, otherwise, dtype=dtype)
        filled[where] = np.array(values, dtype=dtype)
        return filled

    next_keys = np.zeros((*shape, len(keys[0])), dtype=np.int64)
    next_keys[where] = [way.next_keys for way in ways]
    action_key = np.zeros(shape[:2], dtype=np.uint64)
    action_key[where[:2]] = np.array([way.action_hash for way in ways], dtype=np.uint64)
    return DecisionProcess(
        situation=np.array(rows),
        probability=table([way.probability for way in ways], 0.0, np.float64),
        next_state=table([way.next_state for way in ways], NOWHERE, np.int64),
        reward=table([way.reward for way in ways], 0.0, np.float64),
        context_keys=np.array(keys, dtype=np.int64),
        next_keys=next_keys,
        action_key=action_key.view(np.int64),
    )
