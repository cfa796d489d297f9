"""The environments of a run as a Stable-Baselines3 `VecEnv`: arrays, action indices, automatic resets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.vec_env import VecEnv

from hgpo_gym.envs.features import LARGEST_COUNT, TextFeatures
from hgpo_gym.envs.wrappers import NO_ACTION
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.rollouts.rollout import EpisodeOutcome


class EpisodesVecEnv(VecEnv):
    """Each sub-environment plays one task, episode after episode. `play` sets the tasks and the environments.

    Observations are the features of the prompt and of each admissible response, so an agent reads the same text as a
    language model. Actions are indices into the admissible actions.

    Args:
        num_envs: number of sub-environments.
        features: extracts the features of prompt and responses.
        reward_scale: factor of the rewards.
    """

    render_mode = None

    def __init__(self, num_envs: int, features: TextFeatures, reward_scale: float):
        counts = Box(-LARGEST_COUNT, LARGEST_COUNT, (features.length,), np.int8)
        super().__init__(num_envs, counts, Discrete(features.actions))
        self.features, self._scale = features, reward_scale
        self._infos: dict[str, Any] = {}
        self.episodes: list[list[EpisodeOutcome]] = [[] for _ in range(num_envs)]
        """The episodes that have ended since `play`, by sub-environment."""
        self.actions_left_out = 0
        """Admissible actions beyond the last index, summed over the actions taken since `play`."""

    def play(self, env: ContextWrapper, tasks: Sequence[str], seed: tuple[int, ...]) -> None:
        """Set the tasks that the next `reset` begins, one per sub-environment.

        Args:
            env: a `TextVectorEnv` of `num_envs` groups of one, in a `ContextWrapper`.
            tasks: their ids.
            seed: decides all random numbers of the episodes.
        """
        self._env, self._tasks, self._seed = env, tasks, seed
        self.actions_left_out = 0

    def reset(self) -> np.ndarray:
        self.episodes = [[] for _ in range(self.num_envs)]
        return self._begin(np.ones(self.num_envs, dtype=np.bool_))

    def step_async(self, actions: np.ndarray) -> None:
        admissible = self._infos["admissible_actions"]
        self.actions_left_out += sum(
            max(0, len(actions_listed) - self.features.actions) for actions_listed in admissible
        )
        self._chosen = [self._action(row, int(index)) for row, index in enumerate(actions)]

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self._prompts, rewards, terminations, truncations, self._infos = self._env.step(self._chosen)
        self._returns += rewards
        self._steps += 1
        self._valid_steps += self._infos["action_valid"]
        ended = terminations | truncations
        observations = self._observe(range(self.num_envs))
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(ended).tolist():
            infos[row] = {
                "terminal_observation": observations[row].copy(),
                "TimeLimit.truncated": bool(truncations[row] and not terminations[row]),
            }
            self.episodes[row].append(self._episode(row))
        if ended.any():
            # SB3 expects the first observation of the next episode here; the last one is in `infos`.
            observations[ended] = self._begin(ended)
        return observations, (self._scale * rewards).astype(np.float32), ended, infos

    def close(self) -> None:
        """Do nothing: the run closes its environments."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(f"{attr_name} is not for the algorithm to set.")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(f"{method_name} is not for the algorithm to call.")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002 - of VecEnv
        return [False] * len(list(self._get_indices(indices)))

    def _begin(self, rows: np.ndarray) -> np.ndarray:
        """Begin an episode in the sub-environments bool[num_envs] and return their observations."""
        row_indices = np.flatnonzero(rows).tolist()
        seeds = [np.random.SeedSequence((*self._seed, row, len(self.episodes[row]))) for row in row_indices]
        options = {
            "task_ids": [self._tasks[row] for row in row_indices],
            "group_seeds": [int(seed.generate_state(1)[0]) for seed in seeds],
            "reset_mask": rows,
        }
        self._prompts, self._infos = self._env.reset(options=options)
        if rows.all():
            self._returns = np.zeros(self.num_envs)
            self._steps, self._valid_steps = np.zeros((2, self.num_envs), dtype=np.int64)
        self._returns[rows] = self._steps[rows] = self._valid_steps[rows] = 0
        return self._observe(row_indices)

    def _observe(self, rows: Sequence[int]) -> np.ndarray:
        """Return the observations of these rows, int8[rows, length]."""
        observations = []
        for row in rows:
            actions = self._infos["admissible_actions"][row]
            responses = [self._env.prompt.write_response(action, actions=actions) for action in actions]
            observations.append(read(self.features, self._prompts[row], responses))
        return np.stack(observations)

    def _action(self, row: int, index: int) -> str:
        admissible = self._infos["admissible_actions"][row]
        return admissible[index] if index < len(admissible) else NO_ACTION

    def _episode(self, row: int) -> EpisodeOutcome:
        return EpisodeOutcome(
            task_id=self._tasks[row],
            task_type=self._infos["task_type"][row],
            won=bool(self._infos["won"][row]),
            episode_return=float(self._returns[row]),
            steps=int(self._steps[row]),
            valid_steps=int(self._valid_steps[row]),
        )


def read(features: TextFeatures, prompt: str, responses: Sequence[str]) -> np.ndarray:
    """Return the network's input for a step, int8[features.length]."""
    return features({"prompt": prompt}, responses)
