"""TextEnv: the contract of a multi-turn text environment.

A new environment is one class with two methods and one property:

    class Echo(TextEnv):
        task_ids = ("cat", "dog")

        def begin_episode(self, task_id):
            return Turn(f"Say {task_id}.", task=f"Say {task_id}.", admissible_actions=("cat", "dog"))

        def take_action(self, action):
            return Turn("Done.", reward=float(action == self.task_id), terminated=True, won=action == self.task_id)

`TextEnv` turns these into Gymnasium's `reset` and `step`, chooses tasks, fills `info` and rejects unknown options, so
that every environment keeps the same promises. `hgpo_gym.envs.checker.check_text_env` tests them.

An environment that can save its state also implements `save_state` and `load_state`. Then `snapshot` and `restore`
work, for methods that branch from a state: search, or exact values by many continuations. `copy.deepcopy` and `pickle`
use them too: they make a copy with the same options, whose data it shares, and restore it from a snapshot.
"""

import copy
import functools
import inspect
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded

from hgpo_gym.envs.spaces import UnicodeText
from hgpo_gym.envs.spec import PortableSpec
from hgpo_gym.option_checks import check_option
from hgpo_gym.suggest import unknown_name

_BOOL_TYPES = (bool, np.bool_)
_RESERVED_KEYS = frozenset({"task_id", "task_type", "task", "admissible_actions", "won", "action_valid"})
"""Keys of `info` that no extras may have."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Result of a reset or a step.

    Attributes:
        observation: the text that the agent sees.
        task: the instruction; needed at the start of an episode, kept until its end.
        admissible_actions: the actions that would change something or answer; empty where actions are open-ended.
        reward: the reward of the action just taken.
        terminated: the episode is over (success or failure; step limits are not the environment's business).
        won: the task is solved.
        action_valid: the action just taken was understood and admissible.
        extras: further keys for `info`.
    """

    observation: str
    task: str | None = None
    admissible_actions: tuple[str, ...] = ()
    reward: float = 0.0
    terminated: bool = False
    won: bool = False
    action_valid: bool = True
    extras: Mapping[str, Any] = field(default_factory=dict)


class TurnError(ValueError):
    """Error for an invalid Turn: an observation that is no text or too long, or a reward that is not finite."""


class Snapshot(NamedTuple):
    """State of an episode from `TextEnv.snapshot`: the last turn, and the state of the environment."""

    task_id: str
    task: str
    turn: Turn
    running: bool
    state: Any
    random_state: Mapping[str, Any]


_COPIED = ("observation_space", "action_space", "_np_random", "_np_random_seed")
"""Attributes of an environment that are part of its state, beside the content of a snapshot."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Recipe for a copy of an environment: the class, its arguments, and its state.

    A deep copy returns the same object, so that environments share their arguments, such as a data set.
    """

    kind: "type[TextEnv]"
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    spec: EnvSpec | None
    attributes: Mapping[str, Any]
    snapshot: Snapshot | None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def make(self) -> "TextEnv":
        env = self.kind(*self.arguments, **self.options)
        env.spec = self.spec
        if self.snapshot is not None:
            env.restore(self.snapshot)
        vars(env).update(copy.deepcopy(self.attributes))
        return env


class TextEnv(gymnasium.Env[str, str]):
    """A text environment with named tasks. Subclasses implement `task_ids`, `begin_episode` and `take_action`.

    Promises (each one is a function in `hgpo_gym.envs.checker`):

    - `info` has `task_id`, `task_type`, `task`, `admissible_actions`, `won` and, after a step, `action_valid`.
    - Where actions are identifiers, `info["action_descriptions"]` may say of each admissible one what it stands for:
      a tuple of as many texts, in their order.
    - `task_ids` lists the tasks in an order that depends on their content alone.
    - All randomness comes from `self.np_random`: the same seed and actions give the same text.
    - An action that cannot be parsed or is not admissible changes nothing and says so; no string raises.

    The step limit is Gymnasium's `TimeLimit`, set by `gymnasium.make(id, max_episode_steps=...)`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own attribute
    max_text_length: int = 8192
    """Longest observation and action, in characters."""

    reset_options: frozenset[str] = frozenset({"task_id"})
    """Names that `reset(options=...)` understands; a subclass that adds one overrides `choose_task`."""

    split: str = "all"
    """The name of the split that is played."""

    texts_key: str = ""
    """Key that must change with the texts, if neither the source, nor the options, nor the task ids change: for example
    the digest of a data file, or the version of a library that writes texts. Recordings with another key are not
    used."""

    task_ids: Sequence[str]
    """Every task of the split: fixed, machine-independent order; a class attribute or a property."""

    spec = cast("EnvSpec | None", PortableSpec())
    _init_arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *_arguments: Any, **options: Any) -> Self:
        """Raise TypeError for an option that the class does not have, and ValueError for a value that its annotation
        excludes, see `option_checks`; messages name the nearest."""
        known = _parameters(cls)  # type: ignore[arg-type]  # a class is hashable
        # A class that takes **options checks their names itself.
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            for name in options.keys() - known.keys():
                raise TypeError(unknown_name(f"option of {cls.__name__}", name, list(known)[1:]))
        for name in options.keys() & known.keys():
            check_option(name, options[name], known[name].annotation, f"option of {cls.__name__}")
        env = super().__new__(cls)
        # Copies and pickles are made anew with these arguments, see `_Recipe`.
        env._init_arguments = (_arguments, options)
        return env

    def __init__(self, *, render_mode: str | None = None):
        if render_mode not in (None, "ansi"):
            raise ValueError(unknown_name("render_mode", render_mode, ["ansi"]))
        self.render_mode = render_mode
        self.observation_space = UnicodeText(self.max_text_length)
        self.action_space = UnicodeText(self.max_text_length)
        self.task_id = ""
        self._task = ""
        self._last_turn = Turn("")
        self._running = False

    @abstractmethod
    def begin_episode(self, task_id: str) -> Turn:
        """Set up the task and return the first turn. Randomness: `self.np_random`."""

    @abstractmethod
    def take_action(self, action: str) -> Turn:
        """Apply one action and return the next turn. Must accept any string."""

    @classmethod
    def send_actions(cls, envs: Sequence["TextEnv"], actions: Sequence[str]) -> None:
        """Send the actions of several environments before `step` is called on each of them. Optional: for environments
        elsewhere, where one message for all costs less than one for each."""

    def save_state(self) -> Any:
        """Return the episode's state as a value that later steps do not change. Optional: `snapshot` needs it."""
        raise NotImplementedError(f"{type(self).__name__} cannot be restored: it has no save_state and load_state.")

    def load_state(self, state: Any) -> None:
        """Restore a value of `save_state`, here or in another environment made with the same options."""
        raise NotImplementedError(f"{type(self).__name__} cannot be restored: it has no save_state and load_state.")

    @property
    def can_snapshot(self) -> bool:
        """True if `snapshot` and `restore` are supported."""
        return type(self).save_state is not TextEnv.save_state

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy by `copy.deepcopy` or `pickle`: make a new environment and restore it, or, without snapshots, copy as
        Python does."""
        if not self.can_snapshot:
            return super().__reduce_ex__(protocol)
        snapshot = self.snapshot() if self.task_id else None
        attributes = {name: vars(self)[name] for name in _COPIED if name in vars(self)}
        return _Recipe.make, (_Recipe(type(self), *self._init_arguments, self.spec, attributes, snapshot),)

    def redraw_expert(self) -> str | None:
        """Redraw the `expert_action` of the present turn by `np_random`, if the expert draws it at random. Call it
        after a restore with a new generator: the turn's action was drawn before. None: the action does not change."""
        return None

    def task_type(self, task_id: str) -> str:  # noqa: ARG002 - for subclasses
        """Return the type of a task, by which results are broken down. One type by default."""
        return "all"

    def choose_task(self, options: Mapping[str, Any]) -> str:
        """Return the task of the next episode: `options["task_id"]`, or one drawn uniformly from `task_ids`."""
        task_id = options.get("task_id")
        if task_id is None:
            return self.task_ids[int(self.np_random.integers(len(self.task_ids)))]
        if task_id not in self.task_ids:
            raise ValueError(unknown_name("task_id", task_id, self.task_ids))
        return task_id

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Raises:
            ValueError: an option or a `task_id` that does not exist, or there is no task.
            TypeError: `begin_episode` returns no Turn.
            TurnError: it returns one with something that is not of its kind, or one that ends the episode.
        """
        super().reset(seed=seed)
        options = options or {}
        for name in options.keys() - self.reset_options:
            raise ValueError(unknown_name("reset option", name, sorted(self.reset_options)))
        check_tasks(self)
        self.task_id = self.choose_task(options)
        self._running = False  # if the task cannot begin, no step goes to the earlier episode
        turn = self._checked(self.begin_episode(self.task_id), "begin_episode", self.task_id)
        if turn.task is None:
            raise ValueError(f"{type(self).__name__}.begin_episode({self.task_id!r}) must set `task`, the instruction.")
        if turn.terminated:
            raise TurnError(
                f"{type(self).__name__}.begin_episode({self.task_id!r}) is over before its first step: leave such "
                "a task out of task_ids."
            )
        self._task, self._last_turn, self._running = turn.task, turn, True
        return turn.observation, self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action. Returns observation, reward, terminated, truncated (always False), info.

        Raises:
            TypeError: the action is not a string, or `take_action` returns no Turn.
            TurnError: it returns one with something that is not of its kind.
            gymnasium.error.ResetNeeded: the episode has ended, or none has begun.
        """
        if not isinstance(action, str):
            raise TypeError(f"An action is a string; got {type(action).__name__} {action!r}.")
        if not self._running:
            ended = f"The episode of task {self.task_id!r} has ended" if self.task_id else "There is no episode yet"
            raise ResetNeeded(f"{ended}: call reset() before step().")
        turn = self._checked(self.take_action(action), "take_action", action)
        self._last_turn, self._running = turn, not turn.terminated
        info = self._info()
        info["action_valid"] = bool(turn.action_valid)
        return turn.observation, float(turn.reward), bool(turn.terminated), False, info

    def snapshot(self) -> Snapshot:
        """Return the present state of the episode, which `restore` accepts any number of times.

        Steps that a wrapper counts (Gymnasium's `TimeLimit`) are not part of it.

        Raises:
            NotImplementedError: the environment cannot do it; `can_snapshot` tells.
            gymnasium.error.ResetNeeded: no episode has begun.
        """
        if self.can_snapshot and not self.task_id:
            raise ResetNeeded("There is no episode yet: call reset() before snapshot().")
        random_state = self.np_random.bit_generator.state
        return Snapshot(self.task_id, self._task, self._last_turn, self._running, self.save_state(), random_state)

    def restore(self, snapshot: Snapshot) -> tuple[str, dict[str, Any]]:
        """Return to a state of this or another environment made with the same options. Returns what `reset` would
        return.

        The random generator is restored too. To branch, give `np_random` another generator.
        """
        self.load_state(snapshot.state)
        self.task_id, self._task = snapshot.task_id, snapshot.task
        self._last_turn, self._running = snapshot.turn, snapshot.running
        # A new generator: the old one may be shared with another environment, which must not change.
        self.np_random = np.random.default_rng(0)
        self.np_random.bit_generator.state = snapshot.random_state
        return self._last_turn.observation, self._info()

    def render(self) -> str | None:
        """Return the latest observation, in render mode `ansi`."""
        return self._last_turn.observation if self.render_mode == "ansi" else None

    def _checked(self, turn: Turn, method: str, argument: str) -> Turn:
        if not isinstance(turn, Turn):
            raise TypeError(f"{type(self).__name__}.{method}({argument!r}) must return a Turn; it returned {turn!r}.")
        if wrong := _broken_promise(turn, self.max_text_length):
            raise TurnError(f"{type(self).__name__}.{method}({argument!r}): {wrong}.")
        return turn

    def _info(self) -> dict[str, Any]:
        turn = self._last_turn
        return {
            "task_id": self.task_id,
            "task_type": self.task_type(self.task_id),
            "task": self._task,
            "admissible_actions": turn.admissible_actions,
            "won": bool(turn.won),
            **turn.extras,
        }


@functools.cache
def _parameters(cls: type[TextEnv]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor: thousands of environments are made of one class."""
    return inspect.signature(cls.__init__).parameters


def no_tasks(env: TextEnv) -> str:
    """Return the error text for an environment whose `task_ids` is empty."""
    return (
        f"{_name(env)} has no task in the split {env.split!r}: set another split or other options. If the environment "
        "is yours, let task_ids list every task of the split, and refuse an unknown split."
    )


def _name(env: TextEnv) -> str:
    return env.spec.id if env.spec else type(env).__name__


def check_tasks(env: TextEnv) -> None:
    """Raise ValueError if `task_ids` is empty, or is no sequence of texts."""
    name, task_ids = _name(env), env.task_ids
    if isinstance(task_ids, str) or not hasattr(task_ids, "__getitem__") or not hasattr(task_ids, "__len__"):
        raise ValueError(f"{name}: task_ids is a {type(task_ids).__name__}: give a tuple of texts in a fixed order.")
    if not len(task_ids):
        raise ValueError(no_tasks(env))
    if not isinstance(task_ids[0], str):
        raise ValueError(f"{name}: task_ids begins with {task_ids[0]!r}, which is no text: give texts.")


# A subclass without an __init__ of its own has this one's options, not "any".
vars(TextEnv)["__new__"].__func__.__signature__ = inspect.signature(TextEnv.__init__)


def _broken_promise(turn: Turn, limit: int) -> str:
    """Return a description of the first invalid field of a turn; an empty text if all are valid."""
    if not isinstance(turn.observation, str):
        return f"Turn.observation is {turn.observation!r}, which is no text"
    if (length := len(turn.observation)) > limit:
        return (
            f"Turn.observation has {length} characters, more than max_text_length={limit}: set that class attribute "
            "higher, or cut the text"
        )
    if not isinstance(turn.admissible_actions, (tuple, list)):
        return f"Turn.admissible_actions is {turn.admissible_actions!r}: give a tuple of texts"
    for name in ("terminated", "won", "action_valid"):
        if not isinstance(value := getattr(turn, name), _BOOL_TYPES):
            return f"Turn.{name} is {value!r}: give True or False"
    try:
        finite = math.isfinite(turn.reward)
    except TypeError:
        finite = False
    if not finite:
        return f"Turn.reward is {turn.reward!r}: give a finite number"
    if turn.extras and not _RESERVED_KEYS.isdisjoint(turn.extras):
        reserved = ", ".join(sorted(_RESERVED_KEYS & turn.extras.keys()))
        return f"Turn.extras has {reserved}, which info has of every environment: choose another key"
    if turn.extras and len(described := turn.extras.get("action_descriptions", turn.admissible_actions)) != len(
        turn.admissible_actions
    ):
        return (
            f"Turn.extras has {len(described)} action_descriptions for {len(turn.admissible_actions)} "
            "admissible_actions: give one each, empty where there is nothing to say"
        )
    return ""
