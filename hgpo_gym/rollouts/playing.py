"""Play episodes: a policy acts in sub-environments until every episode has ended.

Episodes whose environment fails are played again.
"""

import gc
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from hgpo_gym.envs.sub_envs import EpisodeStart
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.context import Written
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.policies.streams import open_stream
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, response_tokens
from hgpo_gym.rollouts.teams.base import Team

ProgressCallback = Callable[[int, int], None]
"""Called repeatedly during play with the steps taken and the episodes ended since the last call."""
_CHANCE = 32
"""Bits of a member's number; the bits above it count the attempts at its episode."""
_NEVER = 2**31 - 1
"""A threshold of Python's garbage collector that is not reached."""


class EpisodeSpec(NamedTuple):
    """The starting point of an episode, and its seeds.

    Attributes:
        group: the index of its task group.
        start: of the sub-environment; of the original episode for a branch.
        member: its number in the group, which seeds the environment's chance from here on.
        seed: of its responses.
        origin: the player that it branches from, None at the start of a task.
        turn: the turn of the origin that it begins at.
        responses_given: how many responses of that turn it shares.
    """

    group: int
    start: EpisodeStart
    member: int
    seed: tuple[int, ...]
    origin: Player | None = None
    turn: int = 0
    responses_given: int = 0

    @property
    def actions(self) -> list[str]:
        """Return the actions that lead to the starting point."""
        return [] if self.origin is None else self.origin.actions[: self.turn]

    @property
    def written(self) -> list[Written]:
        """Return what was written with each of these actions."""
        return [] if self.origin is None else self.origin.written[: self.turn]

    @property
    def rows_before(self) -> int:
        """Return how many rows its player shares with the origin."""
        if self.origin is None:
            return 0
        return sum(row.turn < self.turn for row in self.origin.rows) + self.responses_given


@dataclass
class PlayedEpisodes:
    """Finished and failed episodes.

    Attributes:
        players: by sub-environment, of the episodes that ended.
        starts: by sub-environment, the starting points of these episodes.
        failed: the attempts whose environment failed.
    """

    players: dict[int, Player] = field(default_factory=dict)
    starts: dict[int, EpisodeStart] = field(default_factory=dict)
    failed: list[FailedEpisode] = field(default_factory=list)

    @property
    def failed_groups(self) -> set[int]:
        """Return the groups with an episode that failed at every attempt."""
        return failed_groups_of(self.failed)


def failed_groups_of(failed: Sequence[FailedEpisode]) -> set[int]:
    """Return the groups with an episode that failed at every attempt."""
    return {episode.group for episode in failed if episode.failed}


def episode_specs(
    task_ids: Sequence[str], seeds: Sequence[tuple[int, ...]], members: int, group_size: int
) -> dict[int, EpisodeSpec]:
    """Return, by sub-environment, the first `members` episodes of each task's group, from the start of the task."""
    return {
        group * group_size + member: EpisodeSpec(
            group, EpisodeStart(task_id, group_seed(seed), member), member, (*seed, member)
        )
        for group, (task_id, seed) in enumerate(zip(task_ids, seeds, strict=True))
        for member in range(members)
    }


def group_seed(seed: tuple[int, ...]) -> int:
    """Return the environment seed of a group with this seed."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def play(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    specs: Mapping[int, EpisodeSpec],
    team: Team,
    record: Sequence[str],
    *,
    max_retries: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlayedEpisodes:
    """Play episodes, by sub-environment, to their end.

    An episode whose environment fails is played again from its start, up to `max_retries` times. The new attempt begins
    after the other episodes have ended, with new seeds. Environments report failures only if they contain them, see
    `TextVectorEnv`.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    result, pending = PlayedEpisodes(), dict(specs)
    for attempt in range(max_retries + 1):
        with _no_full_collections():
            players = _begin(env, pending, attempt, team, record)
            _play(env, policy, sampling, players, on_progress)
        failures = {row: vector.failures[row] for row in pending if row in vector.failures}
        result.players |= {row: player for row, player in players.items() if row not in failures}
        result.starts |= {row: vector.starts[row] for row in pending if row not in failures}
        result.failed += [
            _failed(pending[row], players.get(row), error, attempt, max_retries) for row, error in failures.items()
        ]
        if not (pending := {row: pending[row] for row in failures}):
            break
    return result


@contextmanager
def _no_full_collections() -> Iterator[None]:
    """Collect young garbage only. A full collection searches all rows so far, which are no garbage: with thousands of
    environments that takes as long as playing."""
    young, middle, full = gc.get_threshold()
    if full == _NEVER:  # another thread plays, and restores the thresholds
        yield
        return
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, full)


def _begin(
    env: ContextWrapper, specs: Mapping[int, EpisodeSpec], attempt: int, team: Team, record: Sequence[str]
) -> dict[int, Player]:
    """Bring sub-environments to their starting points. Return the players, none where the environment failed."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    while vector.stepping:  # steps of an interrupted rollout are still due
        vector.receive()
    # Attempts get other chance without another member number: the member's bits stay.
    attempt_bits = attempt << _CHANCE
    starts = {row: (spec.start, spec.actions, spec.member + attempt_bits) for row, spec in specs.items()}
    players = {}
    for row, (reset, steps) in sorted(env.begin_at(starts, {row: spec.written for row, spec in specs.items()}).items()):
        spec = specs[row]
        seed = (*spec.seed, attempt) if attempt else spec.seed
        if spec.origin is None:
            players[row] = Player(seed, *reset, team, record)
        else:
            prompt, info = (steps[-1][0], steps[-1][-1]) if steps else reset
            players[row] = spec.origin.branch(spec.turn, seed, prompt, info, responses_given=spec.responses_given)
    return players


def _play(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    players: Mapping[int, Player],
    on_progress: ProgressCallback | None,
) -> None:
    """Play the episodes of all players, by sub-environment, until they have ended."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    stream = open_stream(policy, sampling)
    stream.ask({row: player.request(env.prompt) for row, player in players.items()})
    while stream.pending or vector.stepping:
        responses = stream.work() if stream.pending else {}
        actions = {row: players[row].on_response(env.prompt, response) for row, response in responses.items()}
        if unfinished := {row: players[row].request(env.prompt) for row, action in actions.items() if action is None}:
            stream.ask(unfinished)
        acting = {row: action for row, action in actions.items() if action is not None}
        env.send(acting, {row: players[row].written[-1] for row in acting})
        # A streaming policy must not wait: block for a step only if no request is open.
        min_results = vector.num_envs if stream.in_step else int(not stream.pending)
        results = sorted(env.receive(min_results).items())
        for row, (prompt, reward, terminated, truncated, info) in results:
            if row in vector.failures:
                continue
            # A win at the step limit sets both flags; it is not a truncation.
            players[row].on_step(prompt, reward, truncated and not terminated, info)
            if vector.active[row]:
                stream.ask({row: players[row].request(env.prompt)})
        if on_progress and results:
            on_progress(len(results), sum(not vector.active[row] and row not in vector.failures for row, _ in results))


def _failed(
    spec: EpisodeSpec, player: Player | None, error: Exception, attempt: int, max_retries: int
) -> FailedEpisode:
    new_rows = [] if player is None else player.rows[spec.rows_before :]
    task_id = spec.start.task_id
    return FailedEpisode(
        group=spec.group,
        attempt=attempt + 1,
        failed=attempt == max_retries,
        error=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
        outcome=EpisodeOutcome(task_id, "unknown", False, 0.0, 0, 0)
        if player is None
        else replace(player.outcome, won=False),
        texts=() if player is None else tuple(row.text for row in player.rows),
        rewards=() if player is None else tuple(row.reward for row in player.rows),
        steps=sum(row.last_of_turn for row in new_rows),
        tokens=response_tokens(row.tokens for row in new_rows),
    )
