"""Solver for small levels: A* over moves, so that its plans are shortest."""

import heapq
from itertools import count

from hgpo_gym.envs.sokoban.rules import Level, State


class Solver:
    """Solver for shortest plans from any state of one level. It stores the plans that it has found."""

    def __init__(self, level: Level):
        self._level = level
        self._pushes = _pushes_to_goal(level)
        self._plans: dict[State, tuple[str, ...] | None] = {}

    def plan(self, state: State) -> tuple[str, ...] | None:
        """Return the fewest moves that solve the level from `state`; None if no moves do."""
        if state not in self._plans:
            self._keep(state, self._search(state))
        return self._plans[state]

    def _keep(self, state: State, plan: tuple[str, ...] | None) -> None:
        """Store the plan of a state, and its remainder for the states on the way."""
        self._plans[state] = plan
        while plan:
            state, plan = self._level.moves(state)[plan[0]], plan[1:]
            self._plans[state] = plan

    def _search(self, start: State) -> tuple[str, ...] | None:
        if (estimate := self.pushes_left(start)) is None:
            return None
        tie_breaker = count()  # of two states that look alike, the one that was found first
        queue = [(estimate, next(tie_breaker), 0, start)]
        came_from: dict[State, tuple[State, str] | None] = {start: None}
        fewest = {start: 0}
        while queue:
            _, _, moves, state = heapq.heappop(queue)
            if self._level.is_solved(state):
                return _actions_to(state, came_from)
            # A shorter way was found after this entry was pushed: heapq cannot lower a key.
            if moves > fewest[state]:
                continue
            for action, after in self._level.moves(state).items():
                if moves + 1 < fewest.get(after, moves + 2) and (estimate := self.pushes_left(after)) is not None:
                    fewest[after], came_from[after] = moves + 1, (state, action)
                    heapq.heappush(queue, (moves + 1 + estimate, next(tie_breaker), moves + 1, after))
        return None

    def pushes_left(self, state: State) -> int | None:
        """Return a lower bound on the pushes; None if a box stands where it can never reach a goal."""
        # Each box counts its nearest goal, even if two share it, so the bound never overestimates.
        total = 0
        for box in state.boxes:
            if box not in self._pushes:
                return None
            total += self._pushes[box]
        return total


def _actions_to(state: State, came_from: dict[State, tuple[State, str] | None]) -> tuple[str, ...]:
    actions = []
    while (step := came_from[state]) is not None:
        state, action = step
        actions.append(action)
    return tuple(reversed(actions))


def _pushes_to_goal(level: Level) -> dict[int, int]:
    """Return by cell the fewest pushes that bring a single box from there to a goal, found by pulling boxes off the
    goals."""
    pushes = dict.fromkeys(level.goals, 0)
    frontier = sorted(level.goals)
    while frontier:
        pulled = []
        for cell in frontier:
            for step in level.steps.values():
                # To push a box from `source` to `cell`, the player stands one cell behind it.
                source, player = cell - step, cell - 2 * step
                if source not in pushes and source not in level.walls and player not in level.walls:
                    pushes[source] = pushes[cell] + 1
                    pulled.append(source)
        frontier = pulled
    return pushes
