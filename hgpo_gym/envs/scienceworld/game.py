"""A game of the simulator, which goes on in another Java virtual machine if its own fails."""

import functools
import json
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError

from hgpo_gym.envs.scienceworld.jvm import Course, Jvm, register_game, release_game, run_in_jvm
from hgpo_gym.envs.scienceworld.tasks import expanded


class SimulatorState(NamedTuple):
    """The simulator after an action.

    Attributes:
        text: its answer.
        score: 0 to 100, or negative after an error that cannot be made good.
        completed: it says that the episode is over.
        look: what `look around` shows; empty if it was not asked for.
        inventory: likewise.
        actions: all valid actions, sorted; empty if they were not asked for.
        templates: of actions, with `OBJ` for an object; empty if they were not asked for.
        objects: names of the objects around; likewise.
        references: by action, the ids of its objects; of the objects by id, their names. Only for the expert.
    """

    text: str
    score: int
    completed: bool
    look: str = ""
    inventory: str = ""
    actions: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    references: "References | None" = None


class References(NamedTuple):
    """Objects of actions, and names of objects."""

    objects_of: dict[str, tuple[int, ...]]
    names_of: dict[int, frozenset[str]]


@dataclass(frozen=True)
class Questions:
    """Questions that are asked after each action.

    Attributes:
        surroundings: `look` and `inventory`.
        actions: `actions`. The simulator draws numbers for the list, so that it changes what happens by chance.
        vocabulary: `templates` and `objects`.
    """

    surroundings: bool
    actions: bool
    vocabulary: bool


class TaskVariation(NamedTuple):
    """A task type, a variation, and simplifications, joined by commas."""

    name: str
    variation: int
    simplifications: str


class SimulationState(NamedTuple):
    """A task and the actions that were sent, each with whether references were asked for."""

    task: TaskVariation
    sent: tuple[tuple[str, bool], ...]


class SimulatorError(RuntimeError):
    """Error for an action at which the simulator raised an exception. The game is as it was before."""


class Simulation:
    """An episode at a time.

    Args:
        questions: what is asked after each action.
    """

    def __init__(self, questions: Questions):
        self._questions = questions
        self._jvm: Jvm | None = None
        self._simulator: Any = None
        self._course: Any = None
        self._token = object()
        weakref.finalize(self, release_game, self._token)
        self._sent: list[tuple[str, bool]] = []

    def begin(self, task: TaskVariation, *, references: bool = False) -> SimulatorState:
        """Load a task, and return what `look around` answers."""
        self.load(SimulationState(task, ()))
        return self.act("look around", references=references)

    def save(self) -> SimulationState:
        """Return the state, which `load` accepts in any game with the same questions."""
        return SimulationState(self._task, tuple(self._sent))

    def load(self, state: SimulationState) -> None:
        """Go on from a state. The next call replays it."""
        self._task, self._sent = state.task, list(state.sent)
        self._jvm = None

    def act(self, action: str, *, references: bool = False) -> SimulatorState:
        """Take an action.

        Args:
            action: any text.
            references: return `SimulatorState.references`, too.

        Raises:
            SimulatorError: the simulator cannot read it.
        """
        # py4j cannot send surrogates.
        request = action.encode("utf-8", "replace").decode(), references
        register_game(self._token)
        try:
            state = run_in_jvm(lambda jvm: self._act(jvm, request))
        except BaseException as error:
            self._jvm = None  # it may have done a part of it: replay the episode before the next action
            if isinstance(error, Py4JJavaError):
                raise SimulatorError(str(error.java_exception)) from error
            raise
        self._sent.append(request)
        return state

    def description(self) -> str:
        """Return the description of the task."""
        return run_in_jvm(lambda jvm: self._current(jvm).freeActionTaskDesc())

    def close(self) -> None:
        """Release the simulator. The last game ends the Java virtual machine."""
        self._jvm = self._simulator = self._course = None
        release_game(self._token)

    def _current(self, jvm: Jvm) -> Any:
        """Return the simulator in the state of the episode, and give the machine its shared state."""
        if self._jvm is not jvm:
            self._load(jvm)
            for request in self._sent:
                self._ask(jvm, *request)
            self._jvm = jvm
        jvm.enter(self._course)
        return self._simulator

    def _load(self, jvm: Jvm) -> None:
        self._simulator = jvm.new_simulator()
        self._course = _load(jvm, self._simulator, self._task)

    def _act(self, jvm: Jvm, request: tuple[str, bool]) -> SimulatorState:
        self._current(jvm)
        return self._ask(jvm, *request)

    def _ask(self, jvm: Jvm, action: str, references: bool) -> SimulatorState:
        """Take an action and ask the questions, always in the same order, since some draw numbers."""
        simulator, questions = self._simulator, self._questions
        text = simulator.step(action)
        state = SimulatorState(text, round(100 * simulator.getScore()), simulator.getCompleted())
        if questions.surroundings:
            state = state._replace(look=simulator.freeActionLook(), inventory=simulator.freeActionInventory())
        if questions.actions and references:
            state = self._with_references(jvm, state)
        elif questions.actions:
            state = state._replace(actions=tuple(jvm.texts(simulator.getValidActionObjectCombinations())))
        if questions.vocabulary:
            with jvm.without_side_effects(self._course):
                templates, objects = (
                    jvm.texts(simulator.getPossibleActions()),
                    jvm.texts(simulator.getPossibleObjects()),
                )
            state = state._replace(templates=tuple(templates), objects=tuple(objects))
        return state

    def _with_references(self, jvm: Jvm, state: SimulatorState) -> SimulatorState:
        # Draws the same numbers as the list without references, and has the same actions in another order.
        listed = json.loads(self._simulator.getValidActionObjectCombinationsJSON())["validActions"]
        with jvm.without_side_effects(self._course):
            named = json.loads(self._simulator.getAllObjectIdsTypesReferentsLUTJSON())
        objects_of = {item["action"]: tuple(item["obj_ids"]) for item in listed}
        names_of = {int(id): frozenset(item["referents"]) for id, item in named.items()}
        actions = tuple(sorted(item["action"] for item in listed))
        return state._replace(actions=actions, references=References(objects_of, names_of))


@functools.lru_cache(maxsize=10_000)
def gold_path(task: TaskVariation) -> tuple[str, ...]:
    """Return the simulator's solution of a task from its beginning."""

    def work(jvm: Jvm) -> tuple[str, ...]:
        simulator = jvm.new_simulator()
        _load(jvm, simulator, task, gold=True)
        return tuple(jvm.texts(simulator.getGoldActionSequence()))

    return run_in_jvm(work)


def _load(jvm: Jvm, simulator: Any, task: TaskVariation, *, gold: bool = False) -> Course:
    """Load a task into a simulator and return the course that has begun."""
    simplifications = expanded(task.simplifications, task.name)
    course = jvm.new_course(simplifications)
    jvm.enter(course)
    simulator.load(task.name, task.variation, simplifications, gold)
    return course
