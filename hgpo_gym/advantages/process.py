"""The empirical process of a task group: states, what followed them, and the values that this implies."""

from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch, labels
from hgpo_gym.advantages.linear import solve_blocks
from hgpo_gym.advantages.statistics import joint_labels, moments, success
from hgpo_gym.advantages.values import is_last


class Transitions(NamedTuple):
    """Where each step was and what it led to. Equal numbers are equal states of the same task group.

    Attributes:
        state: int64[N].
        successor: int64[N], the next step's state; after the last step that of the final observation, -1 where it was
            not recorded.
        last: bool[N], the episode's last step.
    """

    state: np.ndarray
    successor: np.ndarray
    last: np.ndarray


def transitions(batch: StepBatch, level: int = 0, time_aware: bool = False) -> Transitions:
    """States by the contexts of `level`. A history shorter than that counts whole, marked as starting there, so that
    every step has a state.

    Args:
        batch: the steps.
        level: of the context keys.
        time_aware: states hold the number of steps taken as well, and so how near the step limit is (Pardo et al., ICML
            2018, arXiv:1712.00378). Where several roles answer between two steps, those of the environment: the
            batch's extra `turn`, if it has one.

    Raises:
        ValueError: the batch has no such level.
    """
    batch.check_level(level)
    order, last = batch.in_order, is_last(batch)
    ends = order[last[order]]
    finals = batch.context_keys[:0] if batch.final_keys is None else batch.final_keys[ends]
    ends = ends[: len(finals)]
    keys = np.concatenate([batch.context_keys, finals])[:, : level + 1]
    groups = np.concatenate([batch.group_labels, batch.group_labels[ends]])
    depth = level - np.argmax(keys[:, ::-1] != 0, axis=1)
    turn = batch.extras.get("turn", batch.step)
    taken = np.concatenate([turn, turn[ends] + 1]) * time_aware
    states = joint_labels(keys[np.arange(len(keys)), depth], depth, groups, taken)
    state = states[: len(batch)]
    successor = np.full(len(batch), -1)
    successor[order[:-1]] = state[order[1:]]
    successor[last] = -1
    successor[ends] = np.where(finals[:, 0] == 0, -1, states[len(batch) :])
    return Transitions(state, successor, last)


class Chain(NamedTuple):
    """A group's transitions as a Markov chain whose ends are absorbing: success is worth 1, any other end 0.

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
        """Raises ValueError if the batch has no such level."""
        moves = transitions(batch, level, time_aware)
        state = labels(moves.state)
        ends = state.max(initial=-1) + 1 + ~success(batch)
        following = np.empty(len(batch), dtype=np.int64)
        following[batch.in_order[:-1]] = state[batch.in_order[1:]]
        group = np.empty(state.max(initial=-1) + 1, dtype=np.int64)
        group[state] = batch.group_labels
        return cls(state, np.where(moves.last, ends, following), group, batch.distinct)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """float64[S]: the mean over the visits of each state. Copies of a step have equal values."""
        return moments(values[self.counted], self.state[self.counted], ddof=0)[0]

    def with_ends(self, values: np.ndarray) -> np.ndarray:
        """float64[S + 2]: values of the states, then those of the two ends."""
        return np.append(values, [1.0, 0.0])

    def values(self, discount: float) -> np.ndarray:
        """float64[S + 2]: the fixed point V(s) = discount * sum_x N(s, x) / N(s) V(x), then the ends' 1 and 0.

        States that always lead to the same state are worth a power of the discount times the value where their path
        meets a state that does not, or an end: what is left to solve has only the states at which paths part.
        """
        state, following = self.state[self.counted], self.following[self.counted]
        visits = np.bincount(state)
        count = len(visits)
        edges, repeats = np.unique(state * (count + 2) + following, return_counts=True)
        source, target = np.divmod(edges, count + 2)
        meets, power = _paths(source, target, count)
        parts = np.flatnonzero(meets[:count] == np.arange(count))
        number = np.full(count + 2, -1)
        number[parts] = np.arange(len(parts))
        kept = number[source] >= 0
        source, target, repeats = source[kept], target[kept], repeats[kept]
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
    """For every state and the two ends: where its path meets a state with several successors or an end, and after how
    many steps. Such states, and ends, meet themselves. Every path gets there: episodes end."""
    meets = np.arange(count + 2)
    only = np.bincount(source, minlength=count)[source] == 1
    meets[source[only]] = target[only]
    power = (meets != np.arange(count + 2)).astype(np.float64)
    while not np.array_equal(further := meets[meets], meets):
        power, meets = power + power[meets], further
    return meets, power
