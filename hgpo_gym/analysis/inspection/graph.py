"""The rollouts of a group as a graph: its observations, and the actions that led from one to the next."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from hgpo_gym.analysis.inspection.group import Group

WON, NOT_WON = 0, -1
"""Targets of the last actions of episodes, in place of an observation's number."""
END_NAMES = {WON: "won", NOT_WON: "ended without success"}


@dataclass(frozen=True)
class Node:
    """An observation that a group visited.

    Attributes:
        number: from 1, in the order of first visits.
        observation: its text.
        visits: the number of steps that began here.
        first_step: the earliest of these steps, from 0.
    """

    number: int
    observation: str
    visits: int
    first_step: int


@dataclass(frozen=True)
class Edge:
    """An action at an observation and its target (an observation's number or an end), with count and mean G_t."""

    source: int
    action: str
    target: int
    count: int
    mean_return: float


@dataclass(frozen=True)
class Graph:
    nodes: dict[int, Node]
    edges: tuple[Edge, ...]

    def edges_from(self, number: int) -> list[Edge]:
        """Return the edges from an observation, the most frequent first."""
        return sorted((edge for edge in self.edges if edge.source == number), key=lambda edge: -edge.count)


def observation_graph(group: Group) -> Graph:
    """Return the graph of all episodes of a group together."""
    rollout, batch = group.rollout, group.rollout.batch
    steps = group.distinct
    # lexsort sorts by its last key first: by step, then by trajectory.
    order = steps[np.lexsort((batch.trajectory[steps], batch.step[steps]))]
    number_of: dict[str, int] = {}
    visits: defaultdict[int, int] = defaultdict(int)
    first_step: dict[int, int] = {}
    for row in order:
        number = number_of.setdefault(rollout.observations[row], len(number_of) + 1)
        visits[number] += 1
        first_step.setdefault(number, int(batch.step[row]))
    row_of = {(int(batch.trajectory[row]), int(batch.step[row])): row for row in group.rows}
    returns: defaultdict[tuple[int, str, int], list[float]] = defaultdict(list)
    for row in steps:
        trajectory = batch.trajectory[row]
        next_row = row_of.get((int(trajectory), int(batch.step[row]) + 1))
        if next_row is not None:
            target = number_of[rollout.observations[next_row]]
        else:
            target = WON if rollout.episodes[trajectory].won else NOT_WON
        returns[number_of[rollout.observations[row]], rollout.actions[row], target].append(float(group.returns[row]))
    return Graph(
        {number: Node(number, text, visits[number], first_step[number]) for text, number in number_of.items()},
        tuple(Edge(*ends, len(values), float(np.mean(values))) for ends, values in returns.items()),
    )


def shortest_paths(graph: Graph) -> dict[int, Edge]:
    """Return for each observation but the first the last edge of a shortest path from the first one."""
    reached: dict[int, Edge] = {}
    queue = [1]
    while queue:
        for edge in graph.edges_from(queue.pop(0)):
            if edge.target > 1 and edge.target not in reached:
                reached[edge.target] = edge
                queue.append(edge.target)
    return reached
