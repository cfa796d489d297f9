"""Episodes, played by a server that answers requests; nothing here knows verl."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.adapters.verl.loop_settings import LoopSettings, Source
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.sub_envs import EpisodeStart, LocalSubEnvs, StepResult
from hgpo_gym.memory.memory import Memory
from hgpo_gym.policies.base import Request, Response
from hgpo_gym.rollouts.player import Player, StepRecord
from hgpo_gym.rollouts.playing import group_seed
from hgpo_gym.rollouts.recording import REWARD_VECTOR, rewards_of
from hgpo_gym.rollouts.rollout import EpisodeOutcome
from hgpo_gym.rollouts.teams import TEAMS

Ask = Callable[[Request], Awaitable[Response]]
"""Answers one request."""
_ATTEMPT = 32
"""The bits of a member's number; those above it count the attempts, as in `hgpo_gym.rollouts.playing`."""


class EpisodeFailedError(RuntimeError):
    """The environment of an episode failed at every attempt; `__cause__` is its last error."""


class EpisodePlan(NamedTuple):
    """The start of an episode.

    Attributes:
        source: the environment.
        task_id: the task.
        seed: of the task group; its episodes start alike.
        member: the number of the episode in its group, which seeds the environment's chance.
    """

    source: Source
    task_id: str
    seed: tuple[int, ...]
    member: int


class LocalEpisodes:
    """Episodes in environments of this process, used one after another. They share what an environment loads once.

    Args:
        settings: what is played.
    """

    def __init__(self, settings: LoopSettings):
        self.settings = settings
        self._team = TEAMS.bind(settings.team)()
        self._idle: dict[Source, list[LocalSubEnvs]] = defaultdict(list)
        self._making = threading.Lock()

    async def play(self, plan: EpisodePlan, ask: Callable[[int], Ask]) -> Player:
        """Return the player of a finished episode. Environments run in threads, so that other episodes go on.

        An episode whose environment fails is played again, up to `max_retries` times.

        Args:
            plan: its start.
            ask: returns the function that answers requests of an attempt, by its number from 0.

        Raises:
            EpisodeFailedError: it failed each time.
        """
        attempts = self.settings.max_retries + 1
        for attempt in range(attempts):
            envs = await asyncio.to_thread(self._take, plan.source)
            player = await self._attempt(envs, plan, attempt, ask(attempt))
            if isinstance(player, Player):
                self._idle[plan.source].append(envs)
                return player
            error = player
            await asyncio.to_thread(envs.close)
        raise EpisodeFailedError(
            f"{plan.source.label}, task {plan.task_id!r}: the environment failed in {attempts} attempts; the last "
            f"error is {type(error).__name__}: {error}"
        ) from error

    async def _attempt(self, envs: LocalSubEnvs, plan: EpisodePlan, attempt: int, ask: Ask) -> Player | Exception:
        """Return the player of the finished episode, or the environment's error."""
        settings, seed = self.settings, group_seed(plan.seed)
        start = EpisodeStart(plan.task_id, seed, plan.member + (attempt << _ATTEMPT))
        begun = (await asyncio.to_thread(envs.begin, {0: start}))[0]
        if isinstance(begun, Exception):
            return begun
        memory, (observation, info) = settings.memory.make(), begun.reset
        template = memory.template(settings.prompt)
        player_seed = (*plan.seed, plan.member, *([attempt] if attempt else []))
        player = Player(player_seed, *_seen(memory, settings, observation, info), self._team, settings.record)
        over = False
        while not over:
            action = None
            while action is None:
                action = player.on_response(template, await ask(player.request(template)))
            result: StepResult | Exception = (await asyncio.to_thread(envs.step, {0: action}))[0]
            if isinstance(result, Exception):
                return result
            observation, reward, terminated, truncated, info = result
            memory.record(action, player.written[-1])
            prompt, info = _seen(memory, settings, observation, info)
            # A win at the step limit sets both flags; it is not a truncation.
            player.on_step(prompt, float(reward), truncated and not terminated, info)
            over = terminated or truncated
        return player

    def _take(self, source: Source) -> LocalSubEnvs:
        # One at a time: what the first environment loads is kept for those after it.
        with self._making:
            if self._idle[source]:
                return self._idle[source].pop()
            options = source.options(self.settings)
            make_env = partial(make, options.pop("id"), **options)
            return LocalSubEnvs({0: make_env()}, make_env)


def _seen(
    memory: Memory, settings: LoopSettings, observation: str, info: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the prompt of a step, and its info with what a `ContextWrapper` adds."""
    descriptions = info.get("action_descriptions") or ()
    context = memory.observe(observation, info["admissible_actions"], descriptions)
    prompt = settings.prompt.render(info["task"], context)
    return prompt, {**info, "observation": context.observation, "context_keys": context.keys, "context": context}


def describe_rows(name: str, plan: EpisodePlan, player: Player, settings: LoopSettings) -> list[dict[str, Any]]:
    """Return every response of a finished episode in the form of `steps.row_steps`.

    Args:
        name: of the episode, unique in a batch.
        plan: its start.
        player: of the episode.
        settings: what is recorded.
    """
    outcome, final_keys = player.outcome, [int(key) for key in player.final_keys]
    of_the_episode: dict[str, Any] = {"success": outcome.won, "truncated": player.truncated, "final_keys": final_keys}
    if settings.rewards:
        rewards = rewards_of(outcome, plan.source.step_limit(settings))
        of_the_episode[REWARD_VECTOR] = [rewards[reward] for reward in settings.rewards]
    rows = [_described(name, row, settings) | of_the_episode for row in player.rows]
    if settings.texts:
        for row, described in zip(player.rows, rows, strict=True):
            described["texts"] = _texts(player, player.keys_of_turn[row.turn])
        rows[-1]["texts"] += _texts(player, player.final_keys)
    return rows


def _texts(player: Player, keys: np.ndarray) -> list[tuple[int, str]]:
    """Return the key of level 0 with its text, if it is a state's alone: a team's keys depend on messages too."""
    key = int(keys[0])
    return [(key, player.states[key])] if key in player.states else []


def _described(name: str, row: StepRecord, settings: LoopSettings) -> dict[str, Any]:
    return {
        "trajectory": name,
        "step": row.step,
        "reward": row.reward,
        "context_keys": [int(key) for key in row.keys],
        "penalty": 0.0 if row.valid else settings.invalid_action_penalty,
        # Hashes are unsigned 64-bit numbers, columns signed: the same bits.
        "action": row.action - (1 << 64) if row.action >= 1 << 63 else row.action,
        "agent": row.agent,
        **{column: row.extras.get(column, 0) for column in settings.record},
    }


def describe_episode(plan: EpisodePlan, result: Player | EpisodeFailedError) -> dict[str, Any]:
    """Return the outcome of an episode for metrics. One that failed is not won."""
    failed = isinstance(result, EpisodeFailedError)
    lost = EpisodeOutcome(plan.task_id, "unknown", won=False, episode_return=0.0, steps=0, valid_steps=0)
    outcome = result.outcome if isinstance(result, Player) else lost
    return {
        "source": plan.source.label,
        **asdict(outcome),
        "failed": failed,
        "error": str(result) if failed else "",
        "decoding_seed": plan.seed[1],
        "task_number": plan.seed[-1],
    }
