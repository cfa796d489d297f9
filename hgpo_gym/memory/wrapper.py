"""ContextWrapper: memory for any Gymnasium vector environment with text observations."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from hgpo_gym.envs.spaces import UnicodeText
from hgpo_gym.envs.sub_envs import EpisodeStart, ResetResult, StepResult
from hgpo_gym.memory.context import NOTHING_WRITTEN, Context, Written
from hgpo_gym.memory.forms import make_memory
from hgpo_gym.memory.keys import KeyFunction
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.prompts import PromptTemplate

if TYPE_CHECKING:
    from hgpo_gym.envs.vector import TextVectorEnv

_SHOWN = ("task", "admissible_actions", "action_descriptions")
"""The fields of an info that prompts can show."""


class ContextWrapper(VectorWrapper):
    """A vector wrapper that turns observations into prompts and adds context keys to `info`.

    `infos["context_keys"]` is int64[num_envs, K + 1], `infos["context"]` has the contexts of the prompts, and
    `infos["observation"]` the observations, after a malformed tool call with the reason. Every autoreset mode works.

    Args:
        env: a vector environment whose infos have `task` and `admissible_actions`.
        prompt: a template, or the name of a template of this package.
        max_prompt_length: bound of the observation space, in characters.
        memory: a form of memory by name, see `hgpo_gym.memory.forms`, or a function that makes one.
        similarity: for `hgpo_gym.rollouts.collect`: in its batches, observations of a task group that are as similar
            as this have one key, see `cluster_observations`. Keys in infos are always exact.
        options: of the form of this name.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        prompt: PromptTemplate | str = "bare",
        *,
        max_prompt_length: int = 65536,
        memory: str | Callable[..., Memory] = "window",
        similarity: float | None = None,
        **options: Any,
    ):
        super().__init__(env)
        self.single_observation_space = UnicodeText(max_prompt_length)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        make = partial(make_memory, memory) if isinstance(memory, str) else memory
        self._memories = [make(**options) for _ in range(self.num_envs)]
        self.similarity = similarity
        self.prompt = self._memories[0].template(PromptTemplate.named(prompt))
        self._ended = np.ones(self.num_envs, dtype=np.bool_)
        self._prompts = [""] * self.num_envs
        self._contexts: list[Context | None] = [None] * self.num_envs
        self._keys = np.zeros((self.num_envs, self._memories[0].history_length + 1), dtype=np.int64)

    @property
    def history_length(self) -> int:
        """K: the deepest level of the context keys."""
        return self._keys.shape[1] - 1

    @property
    def key(self) -> KeyFunction:
        """Return the definition of equal observations."""
        return self._memories[0].key

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        observations, infos = self.env.reset(seed=seed, options=options)
        failed = self._failed()
        for row in range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist():
            if row not in failed:
                self._begin(row, observations, infos)
        return self._shown(), self._with_context(observations, infos)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take an action in each environment. An action may stand in a response that also has notes."""
        responses, mode = actions, self.metadata.get("autoreset_mode")
        if self.prompt.notes == "beside":
            actions = tuple(self.prompt.prefix.rest(response).strip() for response in responses)
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        ended, failed = terminations | truncations, self._failed()
        for row in range(self.num_envs):
            # Gymnasium resets in the step after the end (NEXT_STEP) or in the last step itself (SAME_STEP).
            has_restarted = self._ended[row] if mode == AutoresetMode.NEXT_STEP else ended[row]
            if mode != AutoresetMode.DISABLED and has_restarted:
                self._begin(row, observations, infos)
            elif row not in failed and (not self._ended[row] or mode == AutoresetMode.SAME_STEP):
                self._memories[row].record(actions[row], Written(responses[row : row + 1]))
                self._observe(row, observations[row], {name: infos[name][row] for name in _SHOWN if name in infos})
        self._ended = ended
        return self._shown(), rewards, terminations, truncations, self._with_context(observations, infos)

    def send(self, actions: Mapping[int, str], written: Mapping[int, Written] = MappingProxyType({})) -> None:
        """Begin a step of some sub-environments of a `TextVectorEnv`; see its `send`.

        Args:
            actions: by sub-environment.
            written: by sub-environment, what the agent wrote in this step, for memories that read it.
        """
        cast("TextVectorEnv", self.env).send(actions)
        for row, action in actions.items():
            self._memories[row].record(action, written.get(row, NOTHING_WRITTEN))

    def receive(self, at_least: int = 1) -> dict[int, StepResult]:
        """Return results of `send`, with observations and infos as in `step`; see `receive` of `TextVectorEnv`.

        Prompts are without the agent's notes, which its `Player` has.
        """
        results = cast("TextVectorEnv", self.env).receive(at_least)
        for row, (observation, reward, terminated, truncated, info) in results.items():
            self._ended[row] = terminated or truncated
            if row not in self._failed():
                prompt, info = self._seen(row, observation, info)
                results[row] = (prompt, reward, terminated, truncated, info)
        return results

    def begin_at(
        self,
        starts: Mapping[int, tuple[EpisodeStart, Sequence[str], int]],
        written: Mapping[int, Sequence[Written]] = MappingProxyType({}),
    ) -> dict[int, ResetResult]:
        """Begin episodes in the middle of others; see `begin_at` of `TextVectorEnv`.

        The memory takes in the replayed steps, so prompts and context keys equal those of the first visit. The results
        have prompts in place of observations, as those of `receive`.

        Args:
            starts: see `begin_at` of `TextVectorEnv`.
            written: by sub-environment, what the agent wrote in each of the replayed steps.
        """
        reset_results = cast("TextVectorEnv", self.env).begin_at(starts)
        for row, (reset, steps) in reset_results.items():
            self._memories[row].reset()
            self._ended[row] = False
            reset_result = ResetResult(self._seen(row, *reset), [])
            actions = starts[row][1]
            texts = written.get(row) or [NOTHING_WRITTEN] * len(actions)
            for action, text, result in zip(actions, texts, steps, strict=True):
                observation, reward, terminated, truncated, info = result
                self._memories[row].record(action, text)
                prompt, info = self._seen(row, observation, info)
                reset_result.steps.append((prompt, reward, terminated, truncated, info))
            reset_results[row] = reset_result
        return reset_results

    def _shown(self) -> tuple[str, ...]:
        """Return the prompts of all environments, each with its agent's notes."""
        memories = zip(self._prompts, self._memories, strict=True)
        return tuple(self.prompt.prefix.show(prompt, memory.notes) for prompt, memory in memories)

    def _failed(self) -> Collection[int]:
        """Return the failed sub-environments of a `TextVectorEnv`; none for other environments."""
        return getattr(self.env, "failures", ())

    def _seen(self, row: int, observation: str, info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Observe, and return the prompt and the info with the observation and its keys."""
        self._observe(row, observation, info)
        context = self._contexts[row]
        assert context is not None
        seen = {"observation": context.observation, "context_keys": self._keys[row].copy(), "context": context}
        return self._prompts[row], {**info, **seen}

    def _begin(self, row: int, observations: Sequence[str], infos: dict[str, Any]) -> None:
        self._memories[row].reset()
        self._ended[row] = False
        self._observe(row, observations[row], {name: infos[name][row] for name in _SHOWN if name in infos})

    def _observe(self, row: int, observation: str, info: Mapping[str, Any]) -> None:
        descriptions = info.get("action_descriptions") or ()
        memory = self._memories[row]
        context = self._contexts[row] = memory.observe(observation, info["admissible_actions"], descriptions)
        self._prompts[row] = self.prompt.render(info["task"], context)
        self._keys[row] = context.keys

    def _with_context(self, observations: Sequence[str], infos: dict[str, Any]) -> dict[str, Any]:
        shown = tuple(
            context.observation if context else observation
            for context, observation in zip(self._contexts, observations, strict=True)
        )
        seen = {"observation": shown, "context_keys": self._keys.copy(), "context": tuple(self._contexts)}
        return {**infos, **seen}
