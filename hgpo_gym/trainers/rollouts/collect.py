"""Rollouts: a policy acts in a vector of environments until every episode has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.trainers.policies.base import Policy, Request, Response, Sampling, TokenRecord
from hgpo_gym.trainers.policies.streams import open_stream


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

    A policy that has a stream of its own is asked about an environment as soon as that one has stepped, so that nobody
    waits for a slow environment or a long answer; for the others all environments step together. The rows come out the
    same: by step, then environment.

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
    size = vector.group_size
    players = {
        row: _Player(row, (*seeds[row // size], row % size), prompts[row], _info(infos, row))
        for row in np.flatnonzero(vector.active).tolist()
    }
    stream = open_stream(policy, sampling)
    stream.ask({row: player.request(env.prompt) for row, player in players.items()})
    while stream.unanswered or vector.stepping:
        answers = stream.work() if stream.unanswered else {}
        env.send({row: players[row].act(env.prompt, response) for row, response in answers.items()})
        wanted = vector.num_envs if stream.in_step else int(not stream.unanswered)
        for row, (prompt, reward, _, _, info) in sorted(env.receive(wanted).items()):
            players[row].see(prompt, reward, info)
            if vector.active[row]:
                stream.ask({row: players[row].request(env.prompt)})
    return _rollout(list(players.values()), vector, invalid_action_penalty)


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


class _Player:
    """The episode of one sub-environment: what is seen now, and a row for every step that was taken."""

    def __init__(self, env: int, seed: tuple[int, ...], prompt: str, info: dict[str, Any]):
        self.env, self.first_info = env, info
        self.rows: list[_Row] = []
        self._seed, self._prompt, self._info = seed, prompt, info
        self._action, self._response = "", Response("")

    @property
    def won(self) -> bool:
        return bool(self._info["won"])

    def request(self, template: PromptTemplate) -> Request:
        """What the policy is asked now."""
        expert_action = self._info.get("expert_action")
        return Request(
            prompt=self._prompt,
            answers=tuple(template.write_answer(action) for action in self._info["admissible_actions"]),
            expert_answer=None if expert_action is None else template.write_answer(expert_action),
            seed=(*self._seed, len(self.rows)),
            task=self._info["task"],
            context_keys=tuple(self._info["context_keys"].tolist()),
        )

    def act(self, template: PromptTemplate, response: Response) -> str:
        """The action of the policy's answer."""
        self._action, self._response = template.parse_action(response.text), response
        return self._action

    def see(self, prompt: str, reward: float, info: dict[str, Any]) -> None:
        """What the action has led to."""
        before, self._prompt, self._info = self._info, prompt, info
        self.rows.append(
            _Row(
                env=self.env,
                step=len(self.rows),
                reward=reward,
                keys=before["context_keys"],
                valid=bool(info["action_valid"]),
                tokens=self._response.tokens,
                text=Step(
                    before["task"],
                    before["observation"],
                    before["admissible_actions"],
                    self._action,
                    before.get("expert_action"),
                ),
            )
        )


def _info(infos: dict[str, Any], row: int) -> dict[str, Any]:
    """The info of one sub-environment. Gymnasium stacks a dictionary in it as a dictionary of arrays."""
    return {name: _info(value, row) if isinstance(value, dict) else value[row] for name, value in infos.items()}


def _rollout(players: list[_Player], vector: TextVectorEnv, invalid_action_penalty: float) -> Rollout:
    rows = sorted((row for player in players for row in player.rows), key=lambda row: (row.step, row.env))
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
            task_id=player.first_info["task_id"],
            task_type=player.first_info["task_type"],
            won=player.won,
            episode_return=float(returns[player.env]),
            steps=int(lengths[player.env]),
            valid_steps=int(valid_steps[player.env]),
        )
        for player in players
    )
    return Rollout(batch, tuple(row.tokens for row in rows), tuple(row.text for row in rows), episodes)
