"""The empirical Markov chain of a task group: states, successors and state values."""

from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.advantages.linear import solve_blocks
from hgpo_gym.advantages.statistics import joint_labels, moments, success
from hgpo_gym.advantages.values import is_last


class Transitions(NamedTuple):
    """The state and the successor of each step. Equal numbers are equal states of the same task group.

    Attributes:
        state: int64[N].
        successor: int64[N], the next step's state. For a last step it is the state of the final observation, -1 if not
            recorded.
        last: bool[N], the episode's last step.
    """

    state: np.ndarray
    successor: np.ndarray
    last: np.ndarray


def transitions(batch: StepBatch, level: int = 0, time_aware: bool = False) -> Transitions:
    """Return the transitions between states, which are equal contexts of `level`.

    A shorter history counts as a whole, and is different from equal observations later in an episode. Every step thus
    has a state.

    Args:
        batch: the steps.
        level: of the context keys.
        time_aware: states include the number of environment steps taken, and so the distance to the step limit (Pardo
            et al., ICML 2018, arXiv:1712.00378). With several roles, it is the batch's extra `turn`.

    Raises:
        ValueError: the batch has no such level.
    """
    batch.check_level(level)
    order, last = batch.in_order, is_last(batch)
    last_rows = order[last[order]]
    final_keys = batch.context_keys[:0] if batch.final_keys is None else batch.final_keys[last_rows]
    last_rows = last_rows[: len(final_keys)]
    keys = np.concatenate([batch.context_keys, final_keys])[:, : level + 1]
    groups = np.concatenate([batch.group_labels, batch.group_labels[last_rows]])
    # The deepest level that has a key (0 is "no history"), so early steps have states too.
    depth = level - np.argmax(keys[:, ::-1] != 0, axis=1)
    turn = batch.extras.get("turn", batch.step)
    steps_taken = np.concatenate([turn, turn[last_rows] + 1]) * time_aware
    states = joint_labels(keys[np.arange(len(keys)), depth], depth, groups, steps_taken)
    state = states[: len(batch)]
    successor = np.full(len(batch), -1)
    successor[order[:-1]] = state[order[1:]]
    # The shift also linked the last step of each episode to the first of the next one.
    successor[last] = -1
    successor[last_rows] = np.where(final_keys[:, 0] == 0, -1, states[len(batch) :])
    return Transitions(state, successor, last)


class Chain(NamedTuple):
    """The transitions as a Markov chain with two absorbing ends: success has the value 1, any other end 0.

    Attributes:
        state: int64[N], 0, 1, 2, ... for visited states.
        following: int64[N], the next step's state; S after the last step of a won episode, S + 1 of any other.
        group: int64[S], the task group of each state.
        counted: the rows that count as visits: a step that several episodes share is one.
    """

    state: np.ndarray
    following: np.ndarray
    group: np.ndarray
    counted: np.ndarray | slice = slice(None)

    @classmethod
    def of(cls, batch: StepBatch, level: int, time_aware: bool = False) -> "Chain":
        """Build the chain of a batch. Raises ValueError if the batch has no such level."""
        moves = transitions(batch, level, time_aware)
        state = labels(moves.state)
        end_states = state.max(initial=-1) + 1 + ~success(batch)
        following = np.empty(len(batch), dtype=np.int64)
        following[batch.in_order[:-1]] = state[batch.in_order[1:]]
        group = np.empty(state.max(initial=-1) + 1, dtype=np.int64)
        group[state] = batch.group_labels
        return cls(state, np.where(moves.last, end_states, following), group, batch.distinct)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the visits of each state, float64[S]. Copies of a step must have equal values."""
        return moments(values[self.counted], self.state[self.counted], ddof=0)[0]

    def with_ends(self, values: np.ndarray) -> np.ndarray:
        """Return float64[S + 2]: the values of the states, then of the two ends."""
        return np.append(values, [1.0, 0.0])

    def values(self, discount: float) -> np.ndarray:
        """Return the fixed point V(s) = discount * sum_x N(s, x) / N(s) V(x), then the ends' 1 and 0: float64[S + 2].

        A state with a single successor needs no equation. Its path leads to a state with several successors or to an
        end. Its value is that state's value times a power of the discount. Only states with several successors are
        solved.
        """
        state, following = self.state[self.counted], self.following[self.counted]
        visits = np.bincount(state)
        count = len(visits)
        # One integer per pair (state, next state), so that a one-dimensional unique counts the transitions.
        edges, repeats = np.unique(state * (count + 2) + following, return_counts=True)
        source, target = np.divmod(edges, count + 2)
        meets, power = _paths(source, target, count)
        parts = np.flatnonzero(meets[:count] == np.arange(count))
        # Numbers of the unknowns; -1 marks states that are not solved, and the ends.
        number = np.full(count + 2, -1)
        number[parts] = np.arange(len(parts))
        unsolved = number[source] >= 0
        source, target, repeats = source[unsolved], target[unsolved], repeats[unsolved]
        weight = repeats / visits[source] * discount ** (1.0 + power[target])
        reached = meets[target]
        won = np.bincount(number[source], weights=weight * (reached == count), minlength=len(parts))
        inner = number[reached] >= 0
        values = np.zeros(count + 2)
        values[count] = 1.0
        values[parts] = solve_blocks(
            number[source[inner]], number[reached[inner]], weight[inner], won, labels(self.group[parts])
        )
        return discount**power * values[meets]


def _paths(source: np.ndarray, target: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every state and end, the first branching state or end on its path, and the number of steps to it.

    A branching state has several successors. Branching states and ends have distance 0. Every path reaches one of
    these, because episodes end.
    """
    meets = np.arange(count + 2)
    only = np.bincount(source, minlength=count)[source] == 1
    meets[source[only]] = target[only]
    power = (meets != np.arange(count + 2)).astype(np.float64)
    # Pointer doubling: each pass doubles the length of the paths.
    while not np.array_equal(further := meets[meets], meets):
        power, meets = power + power[meets], further
    return meets, power
