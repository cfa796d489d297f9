"""check_text_env names the mistakes that people make in their first environment. Each class here makes one."""

from collections import UserDict
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from hgpo_gym.envs import TextEnv, Turn, check_text_env
from hgpo_gym.envs.checker_tasks import check_task_order


class Walk(TextEnv):
    """Walk along a row of stones to the other end; the right environment from which the wrong ones differ."""

    tasks: Any = ("left to right", "right to left")

    def __init__(self, *, split: str = "train", stones: int = 4, render_mode: str | None = None):
        super().__init__(render_mode=render_mode)
        self.split = split
        self.task_ids: tuple[str, ...] = self.tasks
        self.stones = stones

    def begin_episode(self, task_id):
        self.place = 0
        return self.turn()

    def take_action(self, action):
        if action not in ("on", "back"):
            return self.turn(action_valid=False)
        self.place = max(self.place + (1 if action == "on" else -1), 0)
        return self.turn()

    def turn(self, **changes):
        won = self.place == self.stones
        actions = () if won else ("on", "back")
        observation = f"You stand on stone {self.place}."
        output = {"task": "Walk.", "admissible_actions": actions, "terminated": won, "won": won, "reward": float(won)}
        return Turn(**{"observation": observation, **output, **changes})


class NoSuperInit(Walk):
    def __init__(self):
        self.task_ids = ("a",)


class NoTasks(TextEnv):
    def begin_episode(self, task_id):
        return Turn("", task="")

    def take_action(self, action):
        return Turn("")


class NoTakeAction(TextEnv):
    task_ids = ("a",)

    def begin_episode(self, task_id):
        return Turn("", task="")


class OrderOfASet(Walk):
    tasks = tuple({f"task {number}" for number in range(30)})


class HashedTasks(Walk):
    tasks = tuple(f"task {hash(name)}" for name in ("left", "right"))


class IgnoresOptions(Walk):
    def reset(self, *, seed=None, options=None):
        known = {"task_id": options["task_id"]} if "task_id" in (options or {}) else {}
        return super().reset(seed=seed, options=known)


class CountsNonsense(Walk):
    def begin_episode(self, task_id):
        self.actions = 0
        return super().begin_episode(task_id)

    def take_action(self, action):
        self.actions += 1
        turn = super().take_action(action)
        return self.turn(observation=f"Action {self.actions}.", action_valid=turn.action_valid)


class WinsWithoutEnd(Walk):
    def take_action(self, action):
        valid = super().take_action(action).action_valid
        return self.turn(terminated=False, admissible_actions=("on", "back"), action_valid=valid)


class WinsWithoutEndOpenEnded(TextEnv):
    task_ids = ("a",)

    def begin_episode(self, task_id):
        return Turn("Say.", task="Say.")

    def take_action(self, action):
        return Turn("Yes.", won=True)


class OwnStep(Walk):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        del info["action_valid"]
        return observation, reward, terminated, truncated, info


class OwnLimit(Walk):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, True, info


class GoesOnAfterTheEnd(Walk):
    def step(self, action):
        self._running = True
        return super().step(action)


class NeverReset(Walk):
    def __init__(self, **options):
        super().__init__(**options)
        self.visited = []

    def begin_episode(self, task_id):
        self.visited.append(task_id)
        super().begin_episode(task_id)
        return self.turn(observation=f"You have been here {len(self.visited)} times.")


class SharedState(Walk):
    visited: list[int] = []  # noqa: RUF012 - the mistake

    def begin_episode(self, task_id):
        self.visited.clear()
        return super().begin_episode(task_id)

    def take_action(self, action):
        turn = super().take_action(action)
        if turn.action_valid:
            self.visited.append(self.place)
        return self.turn(observation=f"{len(self.visited)} moves.", action_valid=turn.action_valid)


class GrowingInfo(Walk):
    def begin_episode(self, task_id):
        self.visited: list[int] = []
        return super().begin_episode(task_id)

    def turn(self, **changes):
        self.visited.append(self.place)
        return super().turn(**{"extras": {"visited": self.visited}, **changes})


class SharedSnapshot(SharedState):
    def begin_episode(self, task_id):
        self.visited: list[int] = []
        return super().begin_episode(task_id)

    def save_state(self):
        return self.place, self.visited

    def load_state(self, state):
        self.place, self.visited = state


MISTAKES = {
    NoSuperInit: r"NoSuperInit.__init__ must call super\(\).__init__\(render_mode=render_mode\)",
    NoTasks: "NoTasks lacks task_ids",
    NoTakeAction: "NoTakeAction lacks the method take_action",
    OrderOfASet: "Another process lists the same tasks in another order: make task_ids from content alone, and sort",
    HashedTasks: "Another process lists other tasks",
    IgnoresOptions: r"reset\(options={'no such option': 1}\) must raise ValueError",
    CountsNonsense: "Inadmissible actions were added to the same ones, but step 1 differs",
    WinsWithoutEnd: "won=True without terminated=True: winning ends the episode",
    WinsWithoutEndOpenEnded: "won=True without terminated=True: winning ends the episode",
    OwnStep: "info lacks 'action_valid' after a step: write take_action, and leave step as it is",
    OwnLimit: "leave step limits to max_episode_steps",
    GoesOnAfterTheEnd: r"step\(\) after the end of an episode must raise gymnasium.error.ResetNeeded",
    NeverReset: "Same seed and actions, but step 0 differs.*let begin_episode set the whole state",
    SharedState: "Another environment was played at the same time, but step .* differs.*Keep state in self",
    GrowingInfo: r"info\['visited'\] of an earlier step has changed since",
    SharedSnapshot: "led elsewhere the second time",
}


def turns(**fields):
    """Return the attributes of a class whose turns have these fields."""
    return {"turn": lambda self, **changes: Walk.turn(self, **fields, **changes)}


def takes(take_action):
    """Return the attributes of a class that takes actions in this way."""
    return {"take_action": take_action}


def begins(observation):
    """Return the attributes of a class whose episodes begin with what this function returns."""

    def begin_episode(self, task_id):
        Walk.begin_episode(self, task_id)
        return self.turn(observation=observation())

    return {"begin_episode": begin_episode}


def refused(env, action):
    """The environment's turn after an action, which it calls invalid."""
    Walk.take_action(env, action)
    return env.turn(action_valid=False)


def over(env, task_id):
    return Turn("Over.", task="None.", terminated=True)


ATTRIBUTES = [
    ({"tasks": "left to right"}, r"task_ids is the one text 'left to right': write \('left to right',\)"),
    ({"tasks": ()}, "hgpo_gym_tests/Checked-v0 has no task in the split 'train'.* let task_ids list every task"),
    ({"tasks": set(Walk.tasks)}, "task_ids is a set, which has no fixed order"),
    ({"tasks": ("cat", "cat")}, r"task_ids has duplicates: \['cat'\]"),
    (
        {"tasks": ("/data/games/1.txt", "/data/games/2.txt")},
        "The task id '/data/games/1.txt' is a path, which another machine does not have",
    ),
    ({"max_text_length": 10}, r"begin_episode\(.*\): .* 21 characters, more than max_text_length=10: set that class"),
    (turns(observation=0), r"begin_episode\(.*\): Turn.observation is 0, which is no text"),
    (turns(admissible_actions=["on", "back"]), r"info\['admissible_actions'\] is a list, not a tuple"),
    (
        turns(admissible_actions=("on", "back ")),
        "The admissible action 'back ' is empty or has white space at its ends",
    ),
    (turns(admissible_actions=("on", "on")), "admissible_actions has duplicates"),
    (turns(reward=float("nan")), r"\(.*\): Turn.reward is nan: give a finite number"),
    (turns(action_valid="False"), "Turn.action_valid is 'False': give True or False"),
    (turns(admissible_actions="on"), "Turn.admissible_actions is 'on': give a tuple of texts"),
    (turns(extras={"won": True}), "Turn.extras has won, which info has of every environment"),
    (
        turns(extras={"action_descriptions": ("to the next stone",)}),
        "1 action_descriptions for 2 admissible_actions: give one each",
    ),
    (
        turns(extras={"action_descriptions": ["to the next stone", ""]}),
        r"action_descriptions must be a tuple of texts: \['to the next stone', ''\]",
    ),
    (takes(lambda self, action: None), r"Mistaken.take_action\('.*'\) must return a Turn; it returned None"),
    (
        takes(lambda self, action: self.turn(observation={"on": "Gone on.", "back": "Gone back."}[action])),
        "The action '' raised KeyError: ''. Any string may come: return a Turn for what is not",
    ),
    (
        takes(lambda self, action: Walk.take_action(self, action) if action in ("on", "back") else "Pardon?"),
        r"must return a Turn; it returned 'Pardon\?'\. Any string may come",
    ),
    (
        takes(lambda self, action: Walk.take_action(self, action) if action != "on" else self.turn(reward=1 / 0)),
        "The action 'on' raised ZeroDivisionError.* It was listed in admissible_actions",
    ),
    (
        takes(lambda self, action: Walk.take_action(self, "back")),
        "'' is not in admissible_actions, yet action_valid is True",
    ),
    (
        takes(lambda self, action: replace(turn := Walk.take_action(self, action), reward=turn.action_valid - 1.0)),
        "The inadmissible action '' gave a reward or ended the episode",
    ),
    (takes(refused), "'(on|back)' was listed in admissible_actions and then called invalid"),
    ({"begin_episode": over}, "is over before its first step"),
    (
        begins(lambda: f"Stone {np.random.random()}."),
        "draws from the global random generators: use self.np_random",
    ),
    (begins(lambda: f"Stone {np.random.default_rng().random()}."), "Same seed and actions, but step 0 differs"),
    (
        {"choose_task": lambda self, options: self.task_ids[0]},
        r"reset\(options={'task_id': 'right to left'}\) began 'left to right'",
    ),
    (
        {"__init__": lambda self, *, split="train": Walk.__init__(self, split="all")},
        "split='train' was asked for and env.split is 'all'",
    ),
]


@pytest.fixture
def make(request):
    """`gymnasium.make` of a class that is registered for the test alone."""
    id = "hgpo_gym_tests/Checked-v0"

    def make(cls, **options):
        gymnasium.register(id, cls)
        request.addfinalizer(lambda: gymnasium.registry.pop(id))
        return gymnasium.make(id, disable_env_checker=True, **options)

    return make


def test_what_is_right_passes(make):
    check_text_env(make(Walk))


@pytest.mark.parametrize(("mistaken", "message"), MISTAKES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_mistake_is_named(mistaken, message, make):
    env = mistaken() if mistaken is NoSuperInit else make(mistaken)
    with pytest.raises(AssertionError, match=message):
        check_text_env(env)


@pytest.mark.parametrize(("attributes", "message"), ATTRIBUTES)
def test_a_wrong_attribute_is_named(attributes, message, make):
    with pytest.raises(AssertionError, match=message):
        check_text_env(make(type("Mistaken", (Walk,), attributes)))


def test_an_environment_of_another_kind_is_refused_with_a_remedy():
    with pytest.raises(AssertionError, match=r"FrozenLakeEnv must be a subclass of hgpo_gym.TextEnv.*Discrete"):
        check_text_env(gymnasium.make("FrozenLake-v1"))


def test_options_that_no_worker_process_could_be_sent_are_named(make):
    class Unsendable(UserDict):
        def __reduce__(self):
            raise TypeError("I stay here")

    env = make(Walk)
    env.unwrapped.spec.kwargs["stones"] = Unsendable()
    with pytest.raises(AssertionError, match=r"cannot be sent to worker processes.*I stay here"):
        check_task_order(env.unwrapped)
