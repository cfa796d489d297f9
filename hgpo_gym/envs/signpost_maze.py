"""SignpostMaze: a small world in which the right action depends on earlier observations.

A castle is a row of sections. Each has a signpost that names a colour, `distance` bare corridors, and a round hall with
one door of each colour. The right door leads to the next section (from the last one to the garden: success), a wrong
one back to the signpost of the same section. Every corridor looks like every other, and so does every hall. Only the
history shows which door is right, from `distance + 1` observations ago. With `plates` every room shows its place and
its signpost's colour, so the observation alone suffices. With `slip` the same action does not always lead to the same
place.

The rules are pure functions on a hashable state (`SignpostMaze`), so that the value of every history under a policy
can be computed exactly; `SignpostMazeEnv` is the Gymnasium environment around them.
"""

from dataclasses import dataclass
from itertools import product
from typing import Annotated, NamedTuple

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, check_number_of_tasks, in_split
from hgpo_gym.option_checks import AtLeastOne, Range
from hgpo_gym.suggest import unknown_name

COLOURS = ("red", "blue", "green", "white", "black", "yellow")
WALK_ON = "walk on"
GO_BACK = "go back"


class Position(NamedTuple):
    """Position of the agent: the section, and the room in it (0 signpost, then `distance` corridors, the hall)."""

    section: int
    room: int


@dataclass(frozen=True)
class SignpostMaze:
    """Rules of one maze.

    Attributes:
        signs: the colour that each section's signpost names; their number is the number of sections.
        colours: the colours of the doors in every hall.
        distance: corridors between a signpost and its hall.
        plates: every room bears a plate with its section's number and sign.
        slip: how probably an action is replaced by one of the admissible ones, all of them alike.
    """

    signs: tuple[str, ...]
    colours: tuple[str, ...]
    distance: int
    plates: bool = False
    slip: float = 0.0

    start = Position(0, 0)

    @property
    def task(self) -> str:
        return "Find the way through the castle to the garden."

    def is_garden(self, place: Position) -> bool:
        return place.section == len(self.signs)

    def observation(self, place: Position) -> str:
        if self.is_garden(place):
            return "You step out into the garden."
        plate = f" A plate says: section {place.section + 1}, {self.signs[place.section]}." if self.plates else ""
        return self._room(place) + plate

    def _room(self, place: Position) -> str:
        if place.room == 0:
            return f"You stand at a signpost. It says: take the {self.signs[place.section]} door."
        if place.room <= self.distance:
            return "You are in a bare corridor."
        return "You are in a round hall with many doors."

    def admissible_actions(self, place: Position) -> tuple[str, ...]:
        if self.is_garden(place):
            return ()
        if place.room == 0:
            return (WALK_ON,)
        if place.room <= self.distance:
            return (WALK_ON, GO_BACK)
        return (*(f"open {colour} door" for colour in self.colours), GO_BACK)

    def next_place(self, place: Position, action: str) -> Position:
        """Return the destination of an admissible action without slip. Raises ValueError on any other."""
        if action not in self.admissible_actions(place):
            raise ValueError(unknown_name("action", action, self.admissible_actions(place)))
        if action == WALK_ON:
            return Position(place.section, place.room + 1)
        if action == GO_BACK:
            return Position(place.section, place.room - 1)
        right_door = action == f"open {self.signs[place.section]} door"
        return Position(place.section + right_door, 0)

    def outcomes(self, place: Position, action: str) -> dict[Position, float]:
        """Return the probability of each destination of an admissible action. Raises ValueError on any other."""
        probabilities = {self.next_place(place, action): 1.0 - self.slip}
        if self.slip:
            actions = self.admissible_actions(place)
            for destination in (self.next_place(place, replacement) for replacement in actions):
                # Several actions may lead to the same destination: add their probabilities.
                probabilities[destination] = probabilities.get(destination, 0.0) + self.slip / len(actions)
        return probabilities

    def reward(self, place: Position) -> float:
        """Return the reward of arriving at a place."""
        return SUCCESS_REWARD if self.is_garden(place) else 0.0

    def expert_action(self, place: Position) -> str:
        """Return the first action of the shortest way to the garden."""
        return WALK_ON if place.room <= self.distance else f"open {self.signs[place.section]} door"


class SignpostMazeEnv(TextEnv):
    """`hgpo_gym/SignpostMaze-v0`: reward 10 in the garden, else 0.

    Args:
        split: `test` (the tasks whose colour numbers add up to a multiple of `colours`), `train` (the others) or `all`.
        sections: signposts on the way, 1 or more.
        colours: doors in every hall, 2 to 6.
        distance: corridors between a signpost and its hall, 0 or more.
        plates: every room bears a plate with its section's number and sign.
        slip: how probably an action is replaced by one of the admissible ones, 0 to 1.
        expert: put the shortest way's next action into `info["expert_action"]`, and the colour of the right door into
            `info["expert_notes"]`.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a value outside these ranges.
    """

    def __init__(
        self,
        *,
        split: Split = "train",
        sections: AtLeastOne = 3,
        colours: Annotated[int, Range(2, len(COLOURS))] = 3,
        distance: Annotated[int, Range(0)] = 1,
        plates: bool = False,
        slip: Annotated[float, Range(0, 1)] = 0.0,
        expert: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        check_number_of_tasks(f"sections={sections} with colours={colours}", colours, sections)
        self.split, self.slip = split, slip
        self._colours = COLOURS[:colours]
        self._distance = distance
        self._plates = plates
        self._expert = expert
        self.task_ids = tuple(
            "-".join(self._colours[number] for number in signs)
            for signs in product(range(colours), repeat=sections)
            if in_split(split, sum(signs), one_in=colours)
        )

    def dynamics(self, task_id: str) -> SignpostMaze:
        """Return the rules of a task, for exact computations."""
        return SignpostMaze(tuple(task_id.split("-")), self._colours, self._distance, self._plates, self.slip)

    def begin_episode(self, task_id: str) -> Turn:
        self._maze = self.dynamics(task_id)
        self._place = self._maze.start
        return self._turn()

    def take_action(self, action: str) -> Turn:
        actions = self._maze.admissible_actions(self._place)
        if action not in actions:
            return self._turn(prefix="That is not possible here. ", action_valid=False)
        if self.slip and self.np_random.random() < self.slip:
            action = actions[int(self.np_random.integers(len(actions)))]
        self._place = self._maze.next_place(self._place, action)
        return self._turn()

    def save_state(self) -> tuple[SignpostMaze, Position]:
        return self._maze, self._place

    def load_state(self, state: tuple[SignpostMaze, Position]) -> None:
        self._maze, self._place = state

    def _turn(self, prefix: str = "", action_valid: bool = True) -> Turn:
        won = self._maze.is_garden(self._place)
        expert: dict[str, str] = {}
        if self._expert:
            expert["expert_action"] = "" if won else self._maze.expert_action(self._place)
            expert["expert_notes"] = "" if won else self._maze.signs[self._place.section]
        return Turn(
            observation=prefix + self._maze.observation(self._place),
            task=self._maze.task,
            admissible_actions=self._maze.admissible_actions(self._place),
            reward=self._maze.reward(self._place),
            terminated=won,
            won=won,
            action_valid=action_valid,
            extras=expert,
        )
