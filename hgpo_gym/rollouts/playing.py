"""Playing episodes: a policy acts in sub-environments until their episodes have ended. Those whose environment fails
are played again."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from hgpo_gym.envs.sub_envs import EpisodeStart
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.policies.streams import open_stream
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, Rollout, answer_tokens
from hgpo_gym.rollouts.teams.base import Team

ProgressCallback = Callable[[int, int], None]
"""Told, again and again while episodes are played, how many steps were taken and how many episodes have ended since."""
_CHANCE = 32
"""Bits of a member's number; those above count how often its episode was played."""


class EpisodeSpec(NamedTuple):
    """Where an episode begins, and what is drawn from there on.

    Attributes:
        group: the place of its task among those that are played.
        start: its own, or that of the episode that it branches from.
        member: whose chance rules from there on.
        seed: what its answers are drawn from.
        origin: the player that it branches from, None at the start of a task.
        turn: of the origin, which it is about to begin.
        answers: of that turn that it has too.
    """

    group: int
    start: EpisodeStart
    member: int
    seed: tuple[int, ...]
    origin: Player | None = None
    turn: int = 0
    answers: int = 0

    @property
    def actions(self) -> list[str]:
        """Those that lead there."""
        return [] if self.origin is None else self.origin.actions[: self.turn]

    @property
    def rows_before(self) -> int:
        """The rows of its player that are not its own."""
        if self.origin is None:
            return 0
        return sum(row.turn < self.turn for row in self.origin.rows) + self.answers


@dataclass
class PlayedEpisodes:
    """What came of episodes.

    Attributes:
        players: by sub-environment, of those that ended.
        starts: what their sub-environments started from.
        failed: the attempts whose environment failed.
    """

    players: dict[int, Player] = field(default_factory=dict)
    starts: dict[int, EpisodeStart] = field(default_factory=dict)
    failed: list[FailedEpisode] = field(default_factory=list)

    @property
    def failed_groups(self) -> set[int]:
        """With an episode that failed at every attempt."""
        return failed_groups_of(self.failed)


def failed_groups_of(failed: Sequence[FailedEpisode]) -> set[int]:
    """The groups with an episode that failed at every attempt."""
    return {episode.group for episode in failed if episode.failed}


def episode_specs(
    task_ids: Sequence[str], seeds: Sequence[tuple[int, ...]], members: int, group_size: int
) -> dict[int, EpisodeSpec]:
    """By sub-environment, the first `members` of a group of each task, from the start of the task."""
    return {
        group * group_size + member: EpisodeSpec(
            group, EpisodeStart(task_id, group_seed(seed), member), member, (*seed, member)
        )
        for group, (task_id, seed) in enumerate(zip(task_ids, seeds, strict=True))
        for member in range(members)
    }


def group_seed(seed: tuple[int, ...]) -> int:
    """Of the environments of a group that has this seed."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def play(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    wanted: Mapping[int, EpisodeSpec],
    team: Team,
    record: Sequence[str],
    *,
    max_retries: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlayedEpisodes:
    """Play episodes to their end, by sub-environment.

    One whose environment fails (which the environments say where they contain failures, see `TextVectorEnv`) is played
    again from its start when the others have ended, with other responses and other chance, up to `max_retries` times.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    played, waiting = PlayedEpisodes(), dict(wanted)
    for attempt in range(max_retries + 1):
        players = _begin(env, waiting, attempt, team, record)
        _play(env, policy, sampling, players, on_progress)
        failures = {row: vector.failures[row] for row in waiting if row in vector.failures}
        played.players |= {row: player for row, player in players.items() if row not in failures}
        played.starts |= {row: vector.starts[row] for row in waiting if row not in failures}
        played.failed += [
            _failed(waiting[row], players.get(row), error, attempt, max_retries) for row, error in failures.items()
        ]
        if not (waiting := {row: waiting[row] for row in failures}):
            break
    return played


def without_failed(rollout: Rollout, failed: Sequence[FailedEpisode], dropped: Sequence[Player]) -> Rollout:
    """The rollout with what failed, and with the count of what was played and is not in it.

    Args:
        dropped: players whose episodes ended, of groups that were given up.
    """
    if not failed:
        return rollout
    rows = {id(row): row for player in dropped for row in player.rows}.values()
    answers = {id(row.tokens): row.tokens for row in rows}.values()  # where one is shared, rows may be copies
    return replace(
        rollout,
        failures=tuple(failed),
        steps_left_out=rollout.steps_left_out
        + sum(row.last_of_turn for row in rows)
        + sum(episode.steps for episode in failed),
        episodes_left_out=rollout.episodes_left_out + len(dropped) + len(failed),
        tokens_left_out=rollout.tokens_left_out + answer_tokens(answers) + sum(episode.tokens for episode in failed),
    )


def _begin(
    env: ContextWrapper, wanted: Mapping[int, EpisodeSpec], attempt: int, team: Team, record: Sequence[str]
) -> dict[int, Player]:
    """Bring sub-environments to where episodes begin. Returns the players; those that failed on the way have none."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    while vector.stepping:  # of a rollout that was broken off
        vector.receive()
    again = attempt << _CHANCE
    starts = {row: (one.start, one.actions, one.member + again) for row, one in wanted.items()}
    players = {}
    for row, (reset, steps) in sorted(env.begin_at(starts).items()):
        one = wanted[row]
        seed = (*one.seed, attempt) if attempt else one.seed
        if one.origin is None:
            players[row] = Player(seed, *reset, team, record)
        else:
            prompt, info = (steps[-1][0], steps[-1][-1]) if steps else reset
            players[row] = one.origin.branch(one.turn, seed, prompt, info, answers=one.answers)
    return players


def _play(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    players: Mapping[int, Player],
    on_progress: ProgressCallback | None,
) -> None:
    """Let the players, by sub-environment, answer and act until their episodes have ended."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    stream = open_stream(policy, sampling)
    stream.ask({row: player.request(env.prompt) for row, player in players.items()})
    while stream.unanswered or vector.stepping:
        answers = stream.work() if stream.unanswered else {}
        said = {row: players[row].on_response(env.prompt, response) for row, response in answers.items()}
        if more := {row: players[row].request(env.prompt) for row, action in said.items() if action is None}:
            stream.ask(more)
        env.send({row: action for row, action in said.items() if action is not None})
        wanted = vector.num_envs if stream.in_step else int(not stream.unanswered)
        seen = sorted(env.receive(wanted).items())
        for row, (prompt, reward, terminated, truncated, info) in seen:
            if row in vector.failures:
                continue
            # Whoever wins by the last step allowed is told both; nothing was cut off.
            players[row].on_step(prompt, reward, truncated and not terminated, info)
            if vector.active[row]:
                stream.ask({row: players[row].request(env.prompt)})
        if on_progress and seen:
            on_progress(len(seen), sum(not vector.active[row] and row not in vector.failures for row, _ in seen))


def _failed(
    spec: EpisodeSpec, player: Player | None, error: Exception, attempt: int, max_retries: int
) -> FailedEpisode:
    own = [] if player is None else player.rows[spec.rows_before :]
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
        steps=sum(row.last_of_turn for row in own),
        tokens=answer_tokens(row.tokens for row in own),
    )
