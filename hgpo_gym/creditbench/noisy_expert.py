"""A policy that any environment with an expert has: the expert's actions, with a share of random ones.

An environment with snapshots lets it play other ends of an episode. They sample values.
"""

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.envs.base import Snapshot, TextEnv

EPISODES_OF_EXPERT = 100
"""If no admissible actions are listed, random actions are drawn from what the expert does in these episodes."""


class Continuation(NamedTuple):
    """An episode, or its last part. For each step: a number of the observation, the action and the reward.

    The number of the last observation follows those of the steps.
    """

    observations: list[int]
    actions: list[str]
    rewards: list[float]
    won: bool
    truncated: bool

    def with_end(self, step: int, end: "Continuation") -> "Continuation":
        """Return this episode before `step`, followed by another end."""
        return Continuation(
            self.observations[:step] + end.observations,
            self.actions[:step] + end.actions,
            self.rewards[:step] + end.rewards,
            end.won,
            end.truncated,
        )

    def discounted(self, gamma: float) -> float:
        """Return the discounted return of the first step."""
        total = 0.0
        for reward in reversed(self.rewards):  # one order of operations, the same bits on every machine
            total = reward + gamma * total
        return total


def _unseen(_observation: str, _admissible_actions: tuple[str, ...]) -> int:
    return 0


class NoisyExpert:
    """A policy that follows the environment's expert, except for a share of random actions.

    Args:
        env: made with `expert=True`.
        random_actions: the share of random actions. They are admissible ones, or those of `otherwise` if the
            environment lists none.
        generator: draws everything, the environment's chance included.
        horizon: the step limit of an episode.
        seen: returns the number of an observation with its admissible actions; by default always 0.
        otherwise: see `random_actions`.
    """

    def __init__(
        self,
        env: TextEnv,
        random_actions: float,
        generator: np.random.Generator,
        *,
        horizon: int,
        seen: Callable[[str, tuple[str, ...]], int] = _unseen,
        otherwise: Sequence[str] = (),
    ):
        self.env, self.random_actions, self.generator = env, random_actions, generator
        self.horizon, self.seen, self.otherwise = horizon, seen, otherwise

    def play_task(
        self, task_id: str, seed: int, *, keep: Container[int] = ()
    ) -> tuple[Continuation, dict[int, Snapshot]]:
        """Play an episode from the task's start, with fresh randomness. Otherwise as `play`."""
        observation, info = self.env.reset(seed=seed, options={"task_id": task_id})
        return self.play(observation, self._with_other_chance(info), keep=keep)

    def play(
        self,
        observation: str,
        info: dict[str, Any],
        first: int = 0,
        *,
        action: str | None = None,
        keep: Container[int] = (),
    ) -> tuple[Continuation, dict[int, Snapshot]]:
        """Play from step `first` to the end. `action`, if given, is the first action.

        Also returns the snapshots before the steps `keep`, by step.
        """
        observations, actions, rewards = [self.seen(observation, info["admissible_actions"])], [], []
        snapshots: dict[int, Snapshot] = {}
        for step in range(first, self.horizon):
            if step in keep:
                snapshots[step] = self.env.snapshot()
            chosen_action = self._choose(info) if action is None else action
            action = None
            actions.append(chosen_action)
            observation, reward, terminated, _, info = self.env.step(chosen_action)
            rewards.append(reward)
            observations.append(self.seen(observation, info["admissible_actions"]))
            if terminated:
                break
        return Continuation(observations, actions, rewards, info["won"], not terminated), snapshots

    def play_on(
        self, snapshot: Snapshot, step: int, action: str | None = None, *, keep: Container[int] = ()
    ) -> tuple[Continuation, dict[int, Snapshot]]:
        """Play another end of the episode from a snapshot taken before `step`. Otherwise as `play`."""
        observation, info = self.env.restore(snapshot)
        return self.play(observation, self._with_other_chance(info), step, action=action, keep=keep)

    def returns(self, snapshot: Snapshot, step: int, count: int, gamma: float, action: str | None = None) -> np.ndarray:
        """Return the discounted returns of `count` other ends of the episode, float64[count]."""
        return np.array([self.play_on(snapshot, step, action)[0].discounted(gamma) for _ in range(count)])

    def _with_other_chance(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the info of the current turn after the environment's randomness was replaced.

        The expert's random choices are drawn again, too.
        """
        # A restored environment would otherwise repeat the random draws of the first episode.
        self.env.np_random = self.generator
        expert_action = self.env.redraw_expert()
        return info if expert_action is None else {**info, "expert_action": expert_action}

    def _choose(self, info: dict[str, Any]) -> str:
        if self.generator.random() < self.random_actions:
            choices = info["admissible_actions"] or self.otherwise
            return choices[int(self.generator.integers(len(choices)))]
        return info["expert_action"]


def actions_of_expert(env: TextEnv, horizon: int, seed: int, generator: np.random.Generator) -> list[str]:
    """Return the distinct actions of the expert over `EPISODES_OF_EXPERT` episodes; empty if actions are listed."""
    _, info = env.reset(seed=seed)
    if info["admissible_actions"]:
        return []
    expert = NoisyExpert(env, 0.0, generator, horizon=horizon)
    distinct_actions: dict[str, None] = {}
    for episode in range(EPISODES_OF_EXPERT):
        trajectory, _ = expert.play_task(env.task_ids[episode % len(env.task_ids)], seed)
        distinct_actions |= dict.fromkeys(trajectory.actions)
    return list(distinct_actions)
