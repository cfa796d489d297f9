"""An episode that a model plays by calling one function, and its steps for credit assignment."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.sub_envs import chance_of
from hgpo_gym.memory import Context, KeyFunction, Memory, PromptTemplate, hash_text, make_memory
from hgpo_gym.memory.context import Written

OVER = "The episode is over."


class EpisodeStep(NamedTuple):
    """One turn of the model as a row of a `StepBatch`.

    Attributes:
        reward: the sum of the rewards of its actions.
        valid: the turn has an action, and every call was understood and admissible.
        context_keys: int64[K + 1] of the state at the start of the turn, see `hgpo_gym.memory.keys`.
        action: the key of all its actions together.
        success: the episode solved its task; the same on each of its steps.
        final_keys: int64[K + 1] of the episode's final state, the same on each of its steps.
    """

    reward: float
    valid: bool
    context_keys: np.ndarray
    action: int
    success: bool
    final_keys: np.ndarray


class _Action(NamedTuple):
    turn: int
    text: str
    reward: float
    valid: bool


class SingleEpisode:
    """A text interface to a registered environment: `begin`, then `act` until `over`.

    Both return the text that the model reads next.

    Args:
        env_id: a registered id.
        history_length: K, the number of past observations in the context keys.
        key: the observation that the keys compare, see `Memory`.
        memory: a form of memory by name, see `hgpo_gym.memory.forms`, or a function that makes one. It decides what
            `prompt` shows, and may read the agent's notes.
        template: of `prompt`, or the name of a template of this package.
        options: of the environment.

    Attributes:
        turn: the number of the model's current turn, from 0. The caller increments it.
        over: no action is possible: the episode has ended or not begun.
        won: the task is solved.
        admissible_actions: empty where actions are open-ended, and after the end.
        info: the latest info of the environment.

    Raises:
        ValueError: no such id or option, or a memory whose notes are responses of their own.
    """

    def __init__(
        self,
        env_id: str,
        *,
        history_length: int = 2,
        key: str | KeyFunction = "observation",
        memory: str | Callable[..., Memory] = "none",
        template: PromptTemplate | str = "bare",
        **options: Any,
    ):
        if "similarity" in options:
            raise ValueError(
                "similarity merges observations of a task group, and this is one episode. Merge those of a batch by "
                "hgpo_gym.advantages.cluster_observations."
            )
        self.env = make(env_id, **options)
        self.turn, self.over, self.won = 0, True, False
        self.admissible_actions: tuple[str, ...] = ()
        self.info: dict[str, Any] = {}
        make_form = partial(make_memory, memory) if isinstance(memory, str) else memory
        self._memory = make_form(history_length=history_length, key=key)
        self._template = self._memory.template(PromptTemplate.named(template))
        if self._template.notes == "apart":
            raise ValueError(
                "memory: every and at_tokens make notes responses of their own, and here every response is an action. "
                "Choose memory='notes', whose notes stand beside the action."
            )
        self._context: Context
        self._actions: list[_Action] = []
        self._misread: set[int] = set()
        self._keys: list[np.ndarray] = []

    def begin(self, task_id: str, *, seed: int = 0, chance: int | None = None) -> str:
        """Begin an episode of a task, and return the instruction and the first observation.

        Episodes with equal `task_id` and `seed` start alike, as the members of a group should. `chance` seeds all later
        random events; without it, these are equal too.

        Raises:
            ValueError: no such task.
        """
        observation, info = self.env.reset(seed=seed, options={"task_id": task_id})
        if chance is not None:
            self.env.unwrapped.np_random = chance_of(seed, chance)
        self.turn, self.over, self.won = 0, False, False
        self._memory.reset()
        self._actions, self._misread, self._keys = [], set(), []
        return f"{info['task']}\n{self._read(observation, info)}"

    def act(self, action: str) -> str:
        """Take an action, and return the observation and the admissible actions. After the end return `OVER`.

        The action may stand in a response with notes, if the memory reads them.
        """
        if self.over:
            return OVER
        response = action
        if self._template.notes == "beside":
            action = self._template.prefix.rest(response).strip()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._memory.record(action, Written([response]))
        self._actions.append(_Action(self.turn, action, float(reward), info["action_valid"]))
        self.over, self.won = terminated or truncated, info["won"]
        text = self._read(observation, info)
        return f"{text}\n{OVER} The task is {'solved' if self.won else 'not solved'}." if self.over else text

    def misread(self, turn: int) -> None:
        """Record that a call of this turn was not understood, which makes its step not valid."""
        self._misread.add(turn)

    @property
    def prompt(self) -> str:
        """Return the prompt of the current state, for callers that keep no conversation of their own."""
        rendered = self._template.render(self.info["task"], self._context)
        return self._template.prefix.show(rendered, self._memory.notes)

    @property
    def context_keys(self) -> np.ndarray:
        """Return the context keys int64[K + 1] of the current state, see `hgpo_gym.memory.keys`.

        Raises IndexError before the first episode.
        """
        return self._keys[-1]

    def total_reward(self) -> float:
        """Return the undiscounted sum of the rewards so far."""
        return sum(action.reward for action in self._actions)

    def steps(self, turns: int) -> list[EpisodeStep]:
        """Return the first `turns` turns of the model as steps for credit assignment.

        A turn with several actions is one step. A turn without an action before the end is a step with reward 0 that
        is not valid, since it is the model's choice too. Turns after the end are not steps.
        """
        steps = []
        for turn in range(turns):
            before = sum(action.turn < turn for action in self._actions)
            if self.over and before == len(self._actions):
                break
            turn_actions = [action for action in self._actions if action.turn == turn]
            steps.append(
                EpisodeStep(
                    reward=sum(action.reward for action in turn_actions),
                    valid=bool(turn_actions)
                    and all(action.valid for action in turn_actions)
                    and turn not in self._misread,
                    context_keys=self._keys[before],
                    action=_key("\n".join(action.text for action in turn_actions)),
                    success=self.won,
                    final_keys=self._keys[-1],
                )
            )
        return steps

    def _read(self, observation: str, info: dict[str, Any]) -> str:
        self.info, self.admissible_actions = info, () if self.over else info["admissible_actions"]
        descriptions = info.get("action_descriptions") or ()
        self._context = self._memory.observe(observation, info["admissible_actions"], descriptions)
        self._keys.append(self._context.keys)
        choice = f"\nPossible actions: {', '.join(self.admissible_actions)}." if self.admissible_actions else ""
        return observation + choice


def _key(text: str) -> int:
    """Return the hash as int64, the type of a batch's column."""
    return int(np.uint64(hash_text(text)).view(np.int64))


def step_batch(
    groups: Sequence[Hashable], episodes: Sequence[Sequence[EpisodeStep]], *, invalid_action_penalty: float = 0.0
) -> StepBatch:
    """Return the steps of many episodes, episode after episode, as a batch for the estimators.

    Args:
        groups: for each episode, the name of its task group.
        episodes: for each episode, its steps.
        invalid_action_penalty: the `penalty` of steps that are not valid.
    """
    names = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    rows = [
        (names[group], trajectory, number, step)
        for trajectory, (group, steps) in enumerate(zip(groups, episodes, strict=True))
        for number, step in enumerate(steps)
    ]
    return StepBatch(
        group=np.array([group for group, *_ in rows], dtype=np.int64),
        trajectory=np.array([trajectory for _, trajectory, *_ in rows], dtype=np.int64),
        step=np.array([number for *_, number, _ in rows], dtype=np.int64),
        reward=np.array([step.reward for *_, step in rows], dtype=np.float64),
        context_keys=np.array([step.context_keys for *_, step in rows], dtype=np.int64),
        penalty=np.array([0.0 if step.valid else invalid_action_penalty for *_, step in rows]),
        action=np.array([step.action for *_, step in rows], dtype=np.int64),
        success=np.array([step.success for *_, step in rows], dtype=np.bool_),
        final_keys=np.array([step.final_keys for *_, step in rows], dtype=np.int64),
    )


def turns_of_tokens(mask: np.ndarray) -> np.ndarray:
    """Return the turn of each token, int64[T] from 0; -1 for tokens that the model did not write.

    Args:
        mask: bool[T] or 0 and 1, true for the model's tokens. Other tokens separate its turns.
    """
    from_model = np.asarray(mask) > 0
    begins = from_model & ~np.concatenate(([False], from_model[:-1]))
    return np.where(from_model, np.cumsum(begins) - 1, -1)


def on_tokens(values: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Return float64[T]: each turn's value on its tokens; 0 on other tokens and on turns without a value."""
    # Index -1 reads the appended 0.
    padded = np.append(values, 0.0)
    inside = (turns >= 0) & (turns < len(values))
    return padded[np.where(inside, turns, -1)]
