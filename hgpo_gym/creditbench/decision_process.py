"""The finite decision process that an agent with a memory faces in a task, as arrays."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hgpo_gym.memory.context import PastStep
from hgpo_gym.memory.keys import KeyChain, hash_text, key_function

NOWHERE = -1
"""The next state if the episode ends, or if the state has no such action."""


class Dynamics(Protocol):
    """An environment as pure functions of a hashable place. A place without admissible actions ends the episode.

    `outcomes` returns the probability of each next place.
    """

    @property
    def start(self) -> Any: ...
    def observation(self, place: Any) -> str: ...
    def admissible_actions(self, place: Any) -> tuple[str, ...]: ...
    def outcomes(self, place: Any, action: str) -> Mapping[Any, float]: ...
    def reward(self, place: Any) -> float: ...


@runtime_checkable
class KnownRules(Protocol):
    """An environment whose tasks have known rules: SignpostMaze, GymCards."""

    task_ids: Sequence[str]

    def dynamics(self, task_id: str) -> Dynamics | None:
        """Return the rules of a task; None if they cannot be unfolded with the environment's options."""
        ...


class Situation(NamedTuple):
    """The input of a policy: the past steps that it reads, the current observation, and the admissible actions."""

    history: tuple[PastStep, ...]
    observation: str
    admissible_actions: tuple[str, ...]


@dataclass
class Situations:
    """All situations that a policy can meet, numbered: the rows of its table.

    Tasks share it, because a policy must act alike in tasks that look alike.
    """

    rows: dict[Situation, int] = field(default_factory=dict)

    def row(self, situation: Situation) -> int:
        return self.rows.setdefault(situation, len(self.rows))

    @property
    def admissible(self) -> np.ndarray:
        """The actions that each situation admits, bool[M, A]."""
        count = np.array([len(situation.admissible_actions) for situation in self.rows])
        return np.arange(count.max()) < count[:, None]


@dataclass(frozen=True)
class DecisionProcess:
    """The states of a task (where the agent is, what it remembers, what the context keys hold), the first at index 0.

    Attributes:
        situation: int64[S], the row of the policy's table.
        probability: float64[S, A, B], of each outcome; A is the most actions of any state, B the most outcomes of any
            action (1 in a deterministic environment). 0 if the action or outcome does not exist.
        next_state: int64[S, A, B]; NOWHERE at the end of the episode.
        reward: float64[S, A, B].
        context_keys: int64[S, K + 1], as `Memory` makes them.
        next_keys: int64[S, A, B, K + 1], the keys after each outcome, the end of the episode included.
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
    """Return the process of all reachable states. New situations are added to `situations`.

    `window`, `history_length` and `key` are those of `Memory`.
    """
    function = key_function(key)

    def look(place: Hashable, history: tuple[PastStep, ...], keys: tuple[int, ...], action: str | None) -> Any:
        """Return the state of an agent that arrives at `place` by `action`, given its memory before."""
        chain = KeyChain(history_length)
        chain.keys = np.array(keys, dtype=np.int64).view(np.uint64).tolist()
        canonical = function.text(rules.observation(place), rules.admissible_actions(place))
        action_hash = hash_text(action) if function.with_action and action is not None else None
        return place, history, tuple(chain.advance(hash_text(canonical), action_hash).tolist())

    state_numbers = {look(rules.start, (), (0,) * (history_length + 1), None): 0}
    queue = list(state_numbers)
    rows: list[int] = []
    transitions: list[_Way] = []
    for number, state in enumerate(queue):  # the loop itself appends to the queue
        place, history, keys = state
        observation, actions = rules.observation(place), rules.admissible_actions(place)
        rows.append(situations.row(Situation(history, observation, actions)))
        for choice, action in enumerate(actions):
            past = (*history, PastStep(observation, action))
            for outcome, (next_place, probability) in enumerate(rules.outcomes(place, action).items()):
                next_agent_state = look(next_place, past[max(0, len(past) - window) :], keys, action)
                following = NOWHERE
                if rules.admissible_actions(next_place):
                    following = state_numbers.setdefault(next_agent_state, len(state_numbers))
                    if following == len(queue):
                        queue.append(next_agent_state)
                indices = number, choice, outcome
                transitions.append(
                    _Way(
                        indices,
                        hash_text(action),
                        probability,
                        following,
                        rules.reward(next_place),
                        next_agent_state[2],
                    )
                )
    return _arrays(rows, [keys for _, _, keys in queue], transitions)


class _Way(NamedTuple):
    """A transition; `where` holds the indices of the state, the action and the outcome."""

    where: tuple[int, int, int]
    action_hash: int
    probability: float
    next_state: int
    reward: float
    next_keys: tuple[int, ...]


def _arrays(rows: list[int], keys: list[tuple[int, ...]], transitions: list[_Way]) -> DecisionProcess:
    indices = tuple(np.array([transition.where for transition in transitions]).T)
    shape = len(rows), int(indices[1].max()) + 1, int(indices[2].max()) + 1

    def table(values: list[Any], fill: float, dtype: type) -> np.ndarray:
        filled: np.ndarray = np.full(shape, fill, dtype=dtype)
        filled[indices] = np.array(values, dtype=dtype)
        return filled

    next_keys = np.zeros((*shape, len(keys[0])), dtype=np.int64)
    next_keys[indices] = [transition.next_keys for transition in transitions]
    action_key = np.zeros(shape[:2], dtype=np.uint64)
    action_key[indices[:2]] = np.array([transition.action_hash for transition in transitions], dtype=np.uint64)
    return DecisionProcess(
        situation=np.array(rows),
        probability=table([transition.probability for transition in transitions], 0.0, np.float64),
        next_state=table([transition.next_state for transition in transitions], NOWHERE, np.int64),
        reward=table([transition.reward for transition in transitions], 0.0, np.float64),
        context_keys=np.array(keys, dtype=np.int64),
        next_keys=next_keys,
        action_key=action_key.view(np.int64),
    )
