"""Rollouts: a policy acts in a vector of environments until every episode has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.trainers.batch import StepBatch
from hgpo_gym.trainers.policies.base import Policy, Request, Sampling, TokenRecord


@dataclass(frozen=True, slots=True)
class Episode:
    """How one episode went. `steps` that were valid: understood and admissible."""

    task_id: str
    task_type: str
    won: bool
    episode_return: float
    steps: int
    valid_steps: int


class Step(NamedTuple):
    """What was seen and done at one step, in words, and what the expert would have done where it was asked."""

    task: str
    observation: str
    admissible_actions: tuple[str, ...]
    action: str
    expert_action: str | None


@dataclass(frozen=True)
class Rollout:
    """Episodes, and a row for every step that was taken in them.

    Attributes:
        batch: the arrays for credit assignment; `trajectory` indexes `episodes`.
        tokens: the token record of each row, None where the policy cannot be trained.
        steps: the text of each row.
        episodes: one an environment, in order.
    """

    batch: StepBatch
    tokens: tuple[TokenRecord | None, ...]
    steps: tuple[Step, ...]
    episodes: tuple[Episode, ...]

    @property
    def success(self) -> float:
        return float(np.mean([episode.won for episode in self.episodes]))


def collect(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    *,
    task_ids: Sequence[str],
    seeds: Sequence[tuple[int, ...]],
    invalid_action_penalty: float = 0.0,
) -> Rollout:
    """Run one episode in every sub-environment; nothing is asked of the policy for episodes that have ended.

    Args:
        env: a `TextVectorEnv` in a `ContextWrapper`.
        policy: answers the prompts.
        sampling: how it draws tokens.
        task_ids: the task of each group. With fewer tasks than groups, the other groups stay idle.
        seeds: for each group, the numbers that everything random in its episodes is drawn from.
        invalid_action_penalty: becomes the batch's `penalty` at steps whose action was not valid.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    prompts, infos = env.reset(
        options={
            "task_ids": list(task_ids),
            "group_seeds": [int(np.random.SeedSequence(seed).generate_state(1)[0]) for seed in seeds],
            "reset_mask": np.arange(vector.num_envs) < len(task_ids) * vector.group_size,
        }
    )
    first_infos, started, size = infos, vector.active, vector.group_size
    rows: list[_Row] = []
    step = 0
    while acting := np.flatnonzero(vector.active).tolist():
        requests = [
            _request(env.prompt, prompts[row], infos, row, (*seeds[row // size], row % size, step)) for row in acting
        ]
        responses = policy.generate(requests, sampling)
        actions = [""] * vector.num_envs
        for row, response in zip(acting, responses, strict=True):
            actions[row] = env.prompt.parse_action(response.text)
        before = infos
        prompts, rewards, _, _, infos = env.step(actions)
        rows += [
            _Row(
                env=row,
                step=step,
                reward=rewards[row],
                keys=before["context_keys"][row],
                valid=bool(infos["action_valid"][row]),
                tokens=response.tokens,
                text=_text(before, row, actions[row]),
            )
            for row, response in zip(acting, responses, strict=True)
        ]
        step += 1
    return _rollout(rows, vector, first_infos, infos["won"], started, invalid_action_penalty)


def merge(rollouts: Sequence[Rollout]) -> Rollout:
    """Rollouts of groups that follow one another as one, its rows in the order that `collect` would have given them."""
    if len(rollouts) == 1:
        return rollouts[0]
    batches = [rollout.batch for rollout in rollouts]
    groups = np.cumsum([0, *(batch.group.max() + 1 for batch in batches[:-1])])
    episodes = np.cumsum([0, *(len(rollout.episodes) for rollout in rollouts[:-1])])
    trajectory = np.concatenate([batch.trajectory + first for batch, first in zip(batches, episodes, strict=True)])
    step = np.concatenate([batch.step for batch in batches])
    order = np.lexsort((trajectory, step))
    tokens = [record for rollout in rollouts for record in rollout.tokens]
    steps = [words for rollout in rollouts for words in rollout.steps]
    return Rollout(
        batch=StepBatch(
            group=np.concatenate([batch.group + first for batch, first in zip(batches, groups, strict=True)])[order],
            trajectory=trajectory[order],
            step=step[order],
            reward=np.concatenate([batch.reward for batch in batches])[order],
            context_keys=np.concatenate([batch.context_keys for batch in batches])[order],
            penalty=np.concatenate([batch.penalty for batch in batches])[order],
        ),
        tokens=tuple(tokens[row] for row in order),
        steps=tuple(steps[row] for row in order),
        episodes=tuple(episode for rollout in rollouts for episode in rollout.episodes),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    env: int
    step: int
    reward: float
    keys: np.ndarray
    valid: bool
    tokens: TokenRecord | None
    text: Step


def _text(infos: dict[str, Any], row: int, action: str) -> Step:
    expert_action = infos["expert_action"][row] if "expert_action" in infos else None
    return Step(infos["task"][row], infos["observation"][row], infos["admissible_actions"][row], action, expert_action)


def _request(template: PromptTemplate, prompt: str, infos: dict[str, Any], row: int, seed: tuple[int, ...]) -> Request:
    expert_action = infos["expert_action"][row] if "expert_action" in infos else None
    return Request(
        prompt=prompt,
        answers=tuple(template.write_answer(action) for action in infos["admissible_actions"][row]),
        expert_answer=None if expert_action is None else template.write_answer(expert_action),
        seed=seed,
        task=infos["task"][row],
        context_keys=tuple(infos["context_keys"][row].tolist()),
    )


def _rollout(
    rows: list[_Row],
    vector: TextVectorEnv,
    first_infos: dict[str, Any],
    won: np.ndarray,
    started: np.ndarray,
    invalid_action_penalty: float,
) -> Rollout:
    envs = np.array([row.env for row in rows], dtype=np.int64)
    rewards = np.array([row.reward for row in rows])
    valid = np.array([row.valid for row in rows], dtype=np.bool_)
    batch = StepBatch(
        group=envs // vector.group_size,
        trajectory=envs,
        step=np.array([row.step for row in rows], dtype=np.int64),
        reward=rewards,
        context_keys=np.stack([row.keys for row in rows]),
        penalty=np.where(valid, 0.0, invalid_action_penalty),
    )
    lengths = np.bincount(envs, minlength=vector.num_envs)
    valid_steps = np.bincount(envs, weights=valid, minlength=vector.num_envs)
    returns = np.bincount(envs, weights=rewards, minlength=vector.num_envs)
    episodes = tuple(
        Episode(
            task_id=first_infos["task_id"][env],
            task_type=first_infos["task_type"][env],
            won=bool(won[env]),
            episode_return=float(returns[env]),
            steps=int(lengths[env]),
            valid_steps=int(valid_steps[env]),
        )
        for env in np.flatnonzero(started)
    )
    return Rollout(batch, tuple(row.tokens for row in rows), tuple(row.text for row in rows), episodes)
