"""Planner: finds a shortest sequence of commands that solves a task, from any state of a native game.

It runs A* search on the states of the game and uses two facts about the six task types. Only some commands can be part
of a shortest solution (`_useful_actions`). The number of remaining commands has a tight lower bound (`_Remaining`),
because any two locations are one command apart.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf

from hgpo_gym.envs.alfworld.native import rules
from hgpo_gym.envs.alfworld.native.game import NOTHING, CompiledGame, GroundAction, Numbers, WorldState


def shortest_plan(game: CompiledGame, state: WorldState) -> list[str] | None:
    """Return a shortest list of commands from `state` to success; `[]` if the task is done, None if it cannot be
    solved."""
    remaining = _Remaining(game)
    tie_breaker = count()  # among equals, the state that was found last: it is the deepest
    queue = [(remaining(state), 0, 0, state)]
    cost = {state: 0}
    came_from: dict[WorldState, tuple[WorldState, GroundAction]] = {}
    while queue:
        bound, _, steps, state = heapq.heappop(queue)
        # The queue is in the order of bounds: if the lowest is infinite, no state leads to success.
        if bound == inf:
            return None
        # A shorter path was found after this entry was pushed: heapq cannot lower a key.
        if steps > cost[state]:
            continue
        if rules.is_won(game, state):
            return _commands_to(game, state, came_from)
        for action in _useful_actions(game, state):
            after = rules.apply(game, state, action)
            if steps + 1 < cost.get(after, inf):
                cost[after] = steps + 1
                came_from[after] = (state, action)
                heapq.heappush(queue, (steps + 1 + remaining(after), -next(tie_breaker), steps + 1, after))
    return None


def _commands_to(
    game: CompiledGame, state: WorldState, came_from: dict[WorldState, tuple[WorldState, GroundAction]]
) -> list[str]:
    plan = []
    while state in came_from:
        state, action = came_from[state]
        plan.append(next(command for command, candidate in rules.commands(game, state).items() if candidate == action))
    return plan[::-1]


def _useful_actions(game: CompiledGame, state: WorldState) -> Iterator[GroundAction]:
    """Yield the actions that a shortest solution may need next. They handle an object of the goal, free the hand, or go
    or open where that is possible. Looking, closing and slicing never help."""
    goal, held = game.goal, state.held
    helpful = _helpful_receptacles(game, state)
    for _, action in sorted(rules.commands(game, state).items()):  # so that equally short plans are told apart
        match action.name:
            case "GotoLocation" | "OpenObject":
                if action.receptacle in helpful:
                    yield action
            case "PickupObject" | "CleanObject" | "HeatObject" | "CoolObject":
                if action.object in goal.objects:
                    yield action
            case "ToggleObject":
                if action.object in goal.lamps:
                    yield action
            case "PutObject":
                if held not in goal.objects or goal.receptacles:
                    yield action


def _helpful_receptacles(game: CompiledGame, state: WorldState) -> set[int]:
    """Return the receptacles that a shortest solution may visit: those of the goal, those that hold its objects and
    lamps, and those that clean, heat or cool its objects. If the agent holds something else, add the receptacles that
    fit it."""
    goal = game.goal
    goal_objects = goal.objects | goal.lamps
    found = {receptacle for receptacle, contents in enumerate(state.contents) if not goal_objects.isdisjoint(contents)}
    found |= goal.receptacles | _treating(game)
    if state.held != NOTHING and state.held not in goal.objects:
        found |= game.fits[state.held]
    return found


def _treating(game: CompiledGame) -> Numbers:
    """Return the receptacles that give an object the quality that the goal asks for."""
    return {"clean": game.washing, "hot": game.heating, "cool": game.cooling}.get(game.goal.quality, frozenset())


class _Remaining:
    """Lower bound on the remaining commands of a state. It ignores only where to leave an object that is in the way."""

    def __init__(self, game: CompiledGame):
        self.game = game
        self.treating = self._locations(_treating(game))
        self.bound = self._look_bound if game.goal.task_type == "look_at_obj_in_light" else self._place_bound

    def __call__(self, state: WorldState) -> float:
        return self.bound(state, self._sources(state))

    def _look_bound(self, state: WorldState, sources: dict[int, list[int]]) -> float:
        """Return the bound for taking an object to a lamp. Fetching comes first: the other order needs another trip."""
        lit: set[int] = set()
        unlit: set[int] = set()
        for lamp in self.game.goal.lamps:
            (lit if lamp in state.toggled else unlit).update(self._locations(sources.get(lamp, ())))
        best = inf
        for number in self.game.goal.objects:
            cost, stops = self._fetch(state, number, sources)
            for toggle_cost, place in ((0, lit), (1, unlit)):
                if place:
                    best = min(best, cost + toggle_cost + _trips(state.location, [*stops, place]))
        return best

    def _place_bound(self, state: WorldState, sources: dict[int, list[int]]) -> float:
        return min((self._fill_bound(state, target, sources) for target in self.game.goal.receptacles), default=inf)

    def _fill_bound(self, state: WorldState, target: int, sources: dict[int, list[int]]) -> float:
        """Return the bound for bringing the goal's objects to one receptacle: one or two are missing."""
        goal = self.game.goal
        treated = goal.objects & getattr(state, goal.quality) if goal.quality else goal.objects
        placed = treated & state.contents[target]
        if len(placed) >= goal.needed:
            return 0
        place = self.game.location_of[target]
        if place == NOTHING:
            return inf
        opening = int(target in self.game.openable and target not in state.opened)
        missing = goal.objects - placed
        first = {number: self._deliver(state, number, target, opening, sources) for number in missing}
        if goal.needed - len(placed) == 1:
            return min(first.values(), default=inf)
        # The second trip starts at the receptacle, with an empty hand: what was held before is lying somewhere.
        after = state._replace(location=place, held=NOTHING)
        second = {number: self._deliver(after, number, target, 0, sources) for number in missing - {state.held}}
        if state.held in missing:
            # The object in the hand is put down first, and needs at least take and move again.
            second[state.held] = 2
        return min((first[a] + second[b] for a in missing for b in missing if a != b), default=inf)

    def _deliver(
        self, state: WorldState, number: int, target: int, opening: int, sources: dict[int, list[int]]
    ) -> float:
        """Return the bound for one object: fetch it, clean, heat or cool it if needed, and put it into a receptacle."""
        game = self.game
        cost, stops = self._fetch(state, number, sources)
        if game.goal.quality and number not in getattr(state, game.goal.quality):
            cost += 1
            if not self.treating:
                return inf
            stops.append(self.treating)
        # An object in two receptacles at once is still in the second one when it is taken from the first.
        elsewhere = number == state.held or len(sources.get(number, ())) > 1
        if not (number in state.contents[target] and elsewhere):
            if target not in game.fits[number]:
                return inf
            cost += 1 + opening
            stops.append({game.location_of[target]})
        return cost + _trips(state.location, stops)

    def _fetch(self, state: WorldState, number: int, sources: dict[int, list[int]]) -> tuple[float, list[set[int]]]:
        """Return the number of commands, without moves, that put an object in the hand, and where to give them."""
        if state.held == number:
            return 0, []
        places = sources.get(number)
        if not places or number not in self.game.pickupable:
            return inf, []
        in_the_way = state.held != NOTHING
        if in_the_way and not self._locations(self.game.fits[state.held]):
            return inf, []  # a few things can be taken, but fit nowhere
        closed = all(place in self.game.openable and place not in state.opened for place in places)
        return 1 + closed + in_the_way, [self._locations(places)]

    def _sources(self, state: WorldState) -> dict[int, list[int]]:
        """Return the reachable receptacles that contain an object of the goal, by object."""
        goal_objects = self.game.goal.objects | self.game.goal.lamps
        found: dict[int, list[int]] = {}
        for receptacle, contents in enumerate(state.contents):
            if self.game.location_of[receptacle] != NOTHING and not goal_objects.isdisjoint(contents):
                for number in goal_objects & contents:
                    found.setdefault(number, []).append(receptacle)
        return found

    def _locations(self, receptacles: Iterable[int]) -> set[int]:
        return {self.game.location_of[receptacle] for receptacle in receptacles} - {NOTHING}


def _trips(start: int, stops: list[set[int]]) -> int:
    """Return the number of moves that visit, in this order, one location of every set."""
    trips, reachable = 0, {start}
    for stop in stops:
        # Any two locations are one move apart, so it is best to stay as long as the sets overlap.
        reachable = reachable & stop
        if not reachable:
            trips, reachable = trips + 1, stop
    return trips
