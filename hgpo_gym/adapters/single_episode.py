"""An episode that a model plays by calls of one function, and the steps that credit assignment sees in it."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.sub_envs import chance_of
from hgpo_gym.memory import KeyFunction, Memory, hash_text

OVER = "The episode is over."


class EpisodeStep(NamedTuple):
    """What one turn of the model did, and what came of its episode: a row of a `StepBatch`.

    Attributes:
        reward: the sum of the rewards of its actions.
        valid: it acted, and every action that it called for was understood and admissible.
        context_keys: int64[K + 1] of the moment at which the turn began, see `hgpo_gym.memory.keys`.
        action: the key of its actions together.
        success: of the episode, the same on each of its steps: the task was solved.
        final_keys: int64[K + 1] of what the episode's last action led to, the same on each of its steps.
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
    """A registered environment in words: `begin`, then `act` until `over`; both answer with what the model reads next.

    Args:
        env_id: a registered id.
        history_length: K, how many past observations the context keys look back.
        key: what counts as the observation in the keys, see `Memory`.
        options: of the environment.

    Attributes:
        turn: the number of the model's present turn, from 0. Whoever drives the episode counts it up.
        over: no action is possible, any more or yet.
        won: the task is solved.
        admissible_actions: what can be done now; empty where actions are open-ended, and at the end.
        info: the environment's latest.

    Raises:
        ValueError: no such id or option.
    """

    def __init__(self, env_id: str, *, history_length: int = 2, key: str | KeyFunction = "observation", **options: Any):
        self.env = make(env_id, **options)
        self.turn, self.over, self.won = 0, True, False
        self.admissible_actions: tuple[str, ...] = ()
        self.info: dict[str, Any] = {}
        self._memory = Memory(window=0, history_length=history_length, key=key)
        self._actions: list[_Action] = []
        self._misread: set[int] = set()
        self._keys: list[np.ndarray] = []

    def begin(self, task_id: str, *, seed: int = 0, chance: int | None = None) -> str:
        """Begin an episode of a task: the instruction and the first observation.

        Episodes with equal `task_id` and `seed` start alike, as the members of a group should. `chance` seeds what
        happens by chance afterwards; without it, that is the same for them as well.

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
        """Take an action: what is seen then, and what can be done. After the end nothing happens, and it says so."""
        if self.over:
            return OVER
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._memory.record(action)
        self._actions.append(_Action(self.turn, action, float(reward), info["action_valid"]))
        self.over, self.won = terminated or truncated, info["won"]
        text = self._read(observation, info)
        return f"{text}\n{OVER} The task is {'solved' if self.won else 'not solved'}." if self.over else text

    def misread(self, turn: int) -> None:
        """Note that a call of this turn was not understood, so that its step is not valid, whatever else it did."""
        self._misread.add(turn)

    @property
    def context_keys(self) -> np.ndarray:
        """int64[K + 1] of the present moment, see `hgpo_gym.memory.keys`; there is none before the first episode."""
        return self._keys[-1]

    def total_reward(self) -> float:
        """The undiscounted sum of the rewards so far."""
        return sum(action.reward for action in self._actions)

    def steps(self, turns: int) -> list[EpisodeStep]:
        """The first `turns` turns of the model, as the steps of credit assignment.

        A turn with several actions is one step. A turn without any, while the episode goes on, is a step that earns
        nothing and is not valid: it is a choice that the model made. Turns after the end are no steps.
        """
        steps = []
        for turn in range(turns):
            before = sum(action.turn < turn for action in self._actions)
            if self.over and before == len(self._actions):
                break
            own = [action for action in self._actions if action.turn == turn]
            steps.append(
                EpisodeStep(
                    reward=sum(action.reward for action in own),
                    valid=bool(own) and all(action.valid for action in own) and turn not in self._misread,
                    context_keys=self._keys[before],
                    action=_key("\n".join(action.text for action in own)),
                    success=self.won,
                    final_keys=self._keys[-1],
                )
            )
        return steps

    def _read(self, observation: str, info: dict[str, Any]) -> str:
        self.info, self.admissible_actions = info, () if self.over else info["admissible_actions"]
        self._keys.append(self._memory.observe(observation, info["admissible_actions"]).keys)
        choice = f"\nPossible actions: {', '.join(self.admissible_actions)}." if self.admissible_actions else ""
        return observation + choice


def _key(text: str) -> int:
    """The hash as int64, which is what a batch holds."""
    return int(np.uint64(hash_text(text)).view(np.int64))


def step_batch(
    groups: Sequence[Hashable], episodes: Sequence[Sequence[EpisodeStep]], *, invalid_action_penalty: float = 0.0
) -> StepBatch:
    """The steps of many episodes, one episode after the other, for the estimators.

    Args:
        groups: for each episode, what names its task group.
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
    """int64[T]: in which turn the model wrote each token, from 0; -1 for tokens that are not its own.

    Args:
        mask: bool[T] or 0 and 1, true for the model's tokens. Tokens of others separate its turns.
    """
    own = np.asarray(mask) > 0
    begins = own & ~np.concatenate(([False], own[:-1]))
    return np.where(own, np.cumsum(begins) - 1, -1)


def on_tokens(values: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """float64[T]: each turn's value on its tokens, 0 on all other tokens and on turns that have no value."""
    padded = np.append(values, 0.0)
    inside = (turns >= 0) & (turns < len(values))
    return padded[np.where(inside, turns, -1)]
