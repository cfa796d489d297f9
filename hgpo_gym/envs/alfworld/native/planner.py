"""The expert: a shortest sequence of commands that solves a task, from any state of a native game.

A* search on the states of the game, with two things known about the six task types. Only some commands can be part of
a shortest solution (`_useful_actions`), and the number of commands still needed can be bounded closely from below
(`_Remaining`), because any two locations are one command apart.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf

from hgpo_gym.envs.alfworld.native import rules
from hgpo_gym.envs.alfworld.native.game import NOTHING, CompiledGame, GroundAction, Numbers, WorldState


def shortest_plan(game: CompiledGame, state: WorldState) -> list[str] | None:
    """Commands that lead from `state` to success, as few as possible; `[]` if it is there, None if there is no way."""
    remaining = _Remaining(game)
    ticket = count()  # among equals, the state that was found last: it is the deepest
    queue = [(remaining(state), 0, 0, state)]
    cost = {state: 0}
    came_from: dict[WorldState, tuple[WorldState, GroundAction]] = {}
    while queue:
        bound, _, steps, state = heapq.heappop(queue)
        if bound == inf:
            return None
        if steps > cost[state]:
            continue
        if rules.is_won(game, state):
            return _commands_to(game, state, came_from)
        for action in _useful_actions(game, state):
            after = rules.apply(game, state, action)
            if steps + 1 < cost.get(after, inf):
                cost[after] = steps + 1
                came_from[after] = (state, action)
                heapq.heappush(queue, (steps + 1 + remaining(after), -next(ticket), steps + 1, after))
    return None


def _commands_to(
    game: CompiledGame, state: WorldState, came_from: dict[WorldState, tuple[WorldState, GroundAction]]
) -> list[str]:
    plan = []
    while state in came_from:
        state, action = came_from[state]
        plan.append(next(command for command, other in rules.commands(game, state).items() if other == action))
    return plan[::-1]


def _useful_actions(game: CompiledGame, state: WorldState) -> Iterator[GroundAction]:
    """The actions that a shortest solution may need next: those that handle an object of the goal, make room in the
    hand, or go or open where that is possible. Looking, closing and slicing never help."""
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
    """Where a shortest solution may lead: to the goal's receptacles, objects and lamps, to where its objects are
    cleaned, heated or cooled, and, with something else in the hand, to where that can be left."""
    goal = game.goal
    sought = goal.objects | goal.lamps
    found = {receptacle for receptacle, contents in enumerate(state.contents) if not sought.isdisjoint(contents)}
    found |= goal.receptacles | _treating(game)
    if state.held != NOTHING and state.held not in goal.objects:
        found |= game.fits[state.held]
    return found


def _treating(game: CompiledGame) -> Numbers:
    """The receptacles that give an object the quality that the goal asks for."""
    return {"clean": game.washing, "hot": game.heating, "cool": game.cooling}.get(game.goal.quality, frozenset())


class _Remaining:
    """A lower bound on the commands that a state still needs: exact but for where to leave what is in the way."""

    def __init__(self, game: CompiledGame):
        self.game = game
        self.treating = self._locations(_treating(game))
        self.bound = self._look_bound if game.goal.task_type == "look_at_obj_in_light" else self._place_bound

    def __call__(self, state: WorldState) -> float:
        return self.bound(state, self._sources(state))

    def _look_bound(self, state: WorldState, sources: dict[int, list[int]]) -> float:
        """Take an object to a lamp. Fetching it comes first: the other order needs another trip."""
        lit: set[int] = set()
        unlit: set[int] = set()
        for lamp in self.game.goal.lamps:
            (lit if lamp in state.toggled else unlit).update(self._locations(sources.get(lamp, ())))
        best = inf
        for number in self.game.goal.objects:
            cost, stops = self._fetch(state, number, sources)
            for switching, place in ((0, lit), (1, unlit)):
                if place:
                    best = min(best, cost + switching + _trips(state.location, [*stops, place]))
        return best

    def _place_bound(self, state: WorldState, sources: dict[int, list[int]]) -> float:
        return min((self._fill_bound(state, target, sources) for target in self.game.goal.receptacles), default=inf)

    def _fill_bound(self, state: WorldState, target: int, sources: dict[int, list[int]]) -> float:
        """Bring as many objects to one receptacle as the goal asks for: one or two are missing."""
        goal = self.game.goal
        good = goal.objects & getattr(state, goal.quality) if goal.quality else goal.objects
        there = good & state.contents[target]
        if len(there) >= goal.needed:
            return 0
        place = self.game.location_of[target]
        if place == NOTHING:
            return inf
        lid = int(target in self.game.openable and target not in state.opened)
        missing = goal.objects - there
        first = {number: self._deliver(state, number, target, lid, sources) for number in missing}
        if goal.needed - len(there) == 1:
            return min(first.values(), default=inf)
        # The second trip starts at the receptacle, with an empty hand: what was held before is lying somewhere.
        after = state._replace(location=place, held=NOTHING)
        second = {number: self._deliver(after, number, target, 0, sources) for number in missing - {state.held}}
        if state.held in missing:
            second[state.held] = 2
        return min((first[a] + second[b] for a in missing for b in missing if a != b), default=inf)

    def _deliver(self, state: WorldState, number: int, target: int, lid: int, sources: dict[int, list[int]]) -> float:
        """Fetch an object, clean, heat or cool it if need be, and put it into a receptacle."""
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
            cost += 1 + lid
            stops.append({game.location_of[target]})
        return cost + _trips(state.location, stops)

    def _fetch(self, state: WorldState, number: int, sources: dict[int, list[int]]) -> tuple[float, list[set[int]]]:
        """The commands, other than going somewhere, that put an object in the hand, and where they must be given."""
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
        """The receptacles that can be reached and contain an object of the goal, by object."""
        sought = self.game.goal.objects | self.game.goal.lamps
        found: dict[int, list[int]] = {}
        for receptacle, contents in enumerate(state.contents):
            if self.game.location_of[receptacle] != NOTHING and not sought.isdisjoint(contents):
                for number in sought & contents:
                    found.setdefault(number, []).append(receptacle)
        return found

    def _locations(self, receptacles: Iterable[int]) -> set[int]:
        return {self.game.location_of[receptacle] for receptacle in receptacles} - {NOTHING}


def _trips(start: int, stops: list[set[int]]) -> int:
    """How many times one must go somewhere to visit, in this order, one location of every set."""
    trips, here = 0, {start}
    for stop in stops:
        here = here & stop
        if not here:
            trips, here = trips + 1, stop
    return trips
