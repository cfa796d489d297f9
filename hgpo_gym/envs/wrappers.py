"""Wrappers for agents that work on numbers: indices for actions, arrays for texts.

    env = gymnasium.make("hgpo_gym/SignpostMaze-v0")
    env = DiscreteActions(HashedText(env, actions=8), size=8)

`HashedText` and `TokenIds` go around the text environment, `DiscreteActions` around them. What an observation leaves
open is often in the steps before: both also show the last `window` of them.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Text
from gymnasium.utils import RecordConstructorArgs

from hgpo_gym.envs.features import TextFeatures
from hgpo_gym.suggest import unknown_name

NO_ACTION = ""
"""Action of an index without an admissible action: no environment admits it."""
TRUNCATIONS = ("beginning", "end")

Info = dict[str, Any]


class DiscreteActions(gymnasium.Wrapper[Any, Any, Any, str], RecordConstructorArgs):
    """Action wrapper: an action is an index into the present admissible actions. An index past their end is an invalid
    action, which changes nothing. `info["actions_left_out"]` counts the admissible actions that have no index.

    Args:
        env: with text actions that it lists.
        size: of the action space, `Discrete(size)`.
    """

    def __init__(self, env: gymnasium.Env[Any, str], size: int):
        if size < 1:
            raise ValueError(f"size={size}: must be at least 1.")
        RecordConstructorArgs.__init__(self, size=size)
        super().__init__(env)
        self.action_space = Discrete(size)
        self._size = size
        self._admissible: tuple[str, ...] = ()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Reset the environment. Raises ValueError if it lists no admissible actions."""
        observation, info = self.env.reset(seed=seed, options=options)
        if not info["admissible_actions"]:
            raise ValueError(f"{self.unwrapped} lists no admissible actions: an index has nothing to point at.")
        return observation, self._noted(info)

    def step(self, action: int) -> tuple[Any, Any, bool, bool, Info]:
        within = 0 <= action < min(len(self._admissible), self._size)
        observation, reward, terminated, truncated, info = self.env.step(
            self._admissible[action] if within else NO_ACTION
        )
        return observation, reward, terminated, truncated, self._noted(info)

    def action_masks(self) -> np.ndarray:
        """Return bool[size]: the indices of admissible actions. sb3-contrib's MaskablePPO calls this method by its
        name."""
        return np.arange(self._size) < len(self._admissible)

    def _noted(self, info: Info) -> Info:
        self._admissible = info["admissible_actions"]
        return {**info, "actions_left_out": max(0, len(self._admissible) - self._size)}


class _TextObservation(gymnasium.Wrapper[Any, str, str, str]):
    """Observations from the present texts: the task, the last `window` steps, the observation."""

    def __init__(self, env: gymnasium.Env[str, str], window: int):
        if not isinstance(env.action_space, Text):
            raise ValueError(
                f"{type(self).__name__} needs an environment with text actions, not {env.action_space}: put "
                "DiscreteActions around it, not inside."
            )
        if window < 0:
            raise ValueError(f"window={window}: choose 0 or more steps.")
        super().__init__(env)
        self._past: deque[tuple[str, str]] = deque(maxlen=window)
        self._observation = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Info]:
        self._past.clear()
        self._observation, info = self.env.reset(seed=seed, options=options)
        return self._array(self._texts(info), info["admissible_actions"]), info

    def step(self, action: str) -> tuple[np.ndarray, Any, bool, bool, Info]:
        self._past.append((self._observation, action))
        self._observation, reward, terminated, truncated, info = self.env.step(action)
        return self._array(self._texts(info), info["admissible_actions"]), reward, terminated, truncated, info

    def _texts(self, info: Info) -> dict[str, str]:
        """Return texts by name: the task, the steps before (`observation 2` is two steps ago, `action 2` the action on
        it)."""
        texts = {"task": info["task"]}
        for ago, (observation, action) in zip(range(len(self._past), 0, -1), self._past, strict=True):
            texts |= {f"observation {ago}": observation, f"action {ago}": action}
        return texts | {"observation": self._observation}

    def _array(self, texts: Mapping[str, str], admissible_actions: tuple[str, ...]) -> np.ndarray:
        raise NotImplementedError


class HashedText(_TextObservation, RecordConstructorArgs):
    """Observations as hashed n-grams: float32[features.length] in [-1, 1], see `hgpo_gym.envs.features`.

    Task, observation and each step before have n-grams of their own. With `actions`, the text of each admissible action
    stands at its index: environments list their actions in changing order, so that an index alone says little.

    Args:
        env: with text observations and actions.
        size: places for the n-grams of the texts.
        longest: the longest n-gram, in words.
        window: past steps that are shown.
        actions: admissible actions that are shown; as many as `DiscreteActions` has indices, or 0.
        action_size: places for the n-grams of each.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        size: int = 256,
        *,
        longest: int = 2,
        window: int = 2,
        actions: int = 0,
        action_size: int = 32,
    ):
        RecordConstructorArgs.__init__(
            self, size=size, longest=longest, window=window, actions=actions, action_size=action_size
        )
        _TextObservation.__init__(self, env, window)
        self.features = TextFeatures(size=size, longest=longest, actions=actions, action_size=action_size)
        self.observation_space = Box(-1.0, 1.0, (self.features.length,), np.float32)

    def _array(self, texts: Mapping[str, str], admissible_actions: tuple[str, ...]) -> np.ndarray:
        return self.features.unit_length(self.features(texts, admissible_actions))


class TokenIds(_TextObservation, RecordConstructorArgs):
    """Observations as token ids: int64[length], filled up with `padding` at the end.

    The text has a line each for the task, the past steps and their actions, what is seen now and, if asked for, the
    admissible actions.

    Args:
        env: with text observations and actions.
        tokenizer: text -> ids in [0, vocabulary_size).
        length: ids of an observation.
        vocabulary_size: bounds the ids of the observation space.
        padding: the id after the end of a short text.
        truncate: what a long text loses, its `beginning` or its `end`.
        window: past steps that are shown.
        actions: whether admissible actions are shown.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        tokenizer: Callable[[str], Sequence[int]],
        length: int,
        *,
        vocabulary_size: int,
        padding: int = 0,
        truncate: str = "beginning",
        window: int = 2,
        actions: bool = False,
    ):
        if truncate not in TRUNCATIONS:
            raise ValueError(unknown_name("truncate", truncate, TRUNCATIONS))
        if length < 1:
            raise ValueError(f"length={length}: must be at least 1.")
        if not 0 <= padding < vocabulary_size:
            raise ValueError(f"padding={padding}: an id from 0 to vocabulary_size - 1 = {vocabulary_size - 1}.")
        RecordConstructorArgs.__init__(
            self,
            tokenizer=tokenizer,
            length=length,
            vocabulary_size=vocabulary_size,
            padding=padding,
            truncate=truncate,
            window=window,
            actions=actions,
        )
        _TextObservation.__init__(self, env, window)
        self.observation_space = Box(0, vocabulary_size - 1, (length,), np.int64)
        self._tokenizer, self._length, self._padding = tokenizer, length, padding
        self._truncate, self._actions = truncate, actions

    def _array(self, texts: Mapping[str, str], admissible_actions: tuple[str, ...]) -> np.ndarray:
        lines = [f"> {text}" if name.startswith("action") else text for name, text in texts.items()]
        if self._actions:
            lines.append(f"({', '.join(admissible_actions)})")
        ids = np.asarray(self._tokenizer("\n".join(lines)), dtype=np.int64)
        visible_ids = ids[-self._length :] if self._truncate == "beginning" else ids[: self._length]
        array = np.full(self._length, self._padding, dtype=np.int64)
        array[: len(visible_ids)] = visible_ids
        return array
