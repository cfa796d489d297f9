"""Restarts: continuations from snapshots of a rollout. Their mean return estimates the value of a step.

A restart plays the same policy again from the start of a step. Environment state, prompt memory and remaining steps
are those of the snapshot; responses and chance are new. The snapshot is restored by replaying its actions, as for
branches of a tree. Worker processes and environments without snapshots thus support restarts too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.statistics import check_shares
from hgpo_gym.envs.sub_envs import EpisodeStart
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import LeftOut, rollout_of, rows_in_order, whole_and_dropped
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.playing import EpisodeSpec, PlayedEpisodes, episode_specs, failed_groups_of, play
from hgpo_gym.rollouts.rollout import FailedEpisode, Rollout, response_tokens
from hgpo_gym.rollouts.teams.base import Solo, Team


class _RestartPoint(NamedTuple):
    """The start of a row: the episode's number, its player, and the row's index in the player's rows."""

    episode: int
    player: Player
    place: int

    @property
    def turn(self) -> int:
        return self.player.rows[self.place].turn

    @property
    def responses_given(self) -> int:
        """Return how many responses of the turn came before."""
        return sum(row.turn == self.turn for row in self.player.rows[: self.place])


class _Restart(NamedTuple):
    """A continuation: the history whose value it samples, its snapshot, its member number and its seed."""

    history: int
    point: _RestartPoint
    member: int
    seed: tuple[int, ...]


class _RestartResult(NamedTuple):
    """The result of a continuation: its discounted return, its steps and its response tokens."""

    earned: float
    steps: int
    tokens: int


def collect_with_restarts(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    *,
    task_ids: Sequence[str],
    seeds: Sequence[tuple[int, ...]],
    restarts: int,
    gamma: float,
    share: float = 1.0,
    invalid_action_penalty: float = 0.0,
    team: Team | None = None,
    record: Sequence[str] = (),
    max_retries: int = 0,
) -> Rollout:
    """Collect as `collect` does, and play `restarts` continuations from the start of each row.

    The mean of their discounted returns is the extra `value`. Rows of a task group with equal histories (all
    observations and messages since the start) share their continuations, which start in these rows by turns.

    The episodes are those of `collect` at these seeds; restarts draw from the stream `RESTART`. Restarts count as
    played and left out, without the replayed actions. They use all sub-environments. Other arguments and extras are
    those of `collect`.

    Args:
        restarts: continuations of each history.
        share: the share of histories with restarts, each drawn independently; first rows always have them. The value
            of the others is NaN.
        gamma: discount.

    Raises:
        ValueError: no restarts, a share or discount outside [0, 1].
    """
    check_restarts(restarts, share, gamma)
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    team, size = team or Solo(), vector.group_size
    first = play(
        env, policy, sampling, episode_specs(task_ids, seeds, size, size), team, record, max_retries=max_retries
    )
    players, _ = whole_and_dropped(first.players, first.failed_groups, size)
    histories = [points for group_players in _by_group(players, size) for points in _histories(group_players)]
    continuations = list(_restarts(histories, seeds, size, restarts, share))
    play_part = partial(play, env, policy, sampling, team=team, record=record, max_retries=max_retries)
    results, failed = _play_restarts(play_part, first.starts, continuations, gamma, vector)
    failed = [*first.failed, *failed]
    players, dropped = whole_and_dropped(first.players, failed_groups_of(failed), size)
    values = _values(histories, continuations, results)
    in_order = list(players.values())
    value = np.array([values[id(row)] for row, _ in rows_in_order(in_order)], dtype=np.float64)
    left_out = LeftOut(
        steps=sum(result.steps for result in results.values()),
        episodes=len(results),
        tokens=sum(result.tokens for result in results.values()),
    )
    return rollout_of(
        in_order,
        env,
        size,
        invalid_action_penalty,
        record,
        extras={"value": value},
        left_out=left_out,
        failed=failed,
        dropped=dropped,
    )


def check_restarts(restarts: int, share: float, gamma: float) -> None:
    """Check the numbers of `collect_with_restarts`. Raises ValueError as it does."""
    if restarts < 1:
        raise ValueError(f"restarts={restarts}: a value needs 1 restart at least.")
    check_shares(share=share, gamma=gamma)


def _by_group(players: Mapping[int, Player], group_size: int) -> list[list[tuple[int, Player]]]:
    in_order = list(players.items())
    return [in_order[first : first + group_size] for first in range(0, len(in_order), group_size)]


def _histories(players: Sequence[tuple[int, Player]]) -> list[list[_RestartPoint]]:
    """Return the snapshots of a group's players by equal history, in the order in which members reach them."""
    ids: dict[tuple[object, ...], int] = {}
    snapshots: dict[int, list[_RestartPoint]] = {}
    for episode, player in players:
        history = -1
        for place, row in enumerate(player.rows):
            state = (history, row.text.observation, row.text.admissible_actions, row.agent)
            key = ids.setdefault(state, len(ids))
            snapshots.setdefault(key, []).append(_RestartPoint(episode, player, place))
            # The carried text is part of the history: the next prompt shows it.
            response = (row.text.action, row.carried)
            history = ids.setdefault((key, response), len(ids))
    return list(snapshots.values())


def _restarts(
    histories: Sequence[list[_RestartPoint]],
    seeds: Sequence[tuple[int, ...]],
    group_size: int,
    restarts: int,
    share: float,
) -> Iterator[_Restart]:
    """Yield the continuations to play.

    Each history reserves its member numbers, so that they do not depend on which histories are drawn.
    """
    generators = [np.random.default_rng((RandomStream.RESTART, *seed)) for _, *seed in seeds]
    next_member = [group_size] * len(seeds)
    for history, points in enumerate(histories):
        group = points[0].episode // group_size
        first, next_member[group] = next_member[group], next_member[group] + restarts
        selected = generators[group].random() < share
        if selected or points[0].place == 0:
            for number in range(restarts):
                member = first + number
                seed = (RandomStream.RESTART, *seeds[group][1:], member)
                yield _Restart(history, points[number % len(points)], member, seed)


def _play_restarts(
    play_part: Callable[[dict[int, EpisodeSpec]], PlayedEpisodes],
    starts: Mapping[int, EpisodeStart],
    continuations: Sequence[_Restart],
    gamma: float,
    vector: TextVectorEnv,
) -> tuple[dict[int, _RestartResult], list[FailedEpisode]]:
    """Play the continuations, as many at a time as there are sub-environments.

    Those that begin at the same turn play together, since they have as many steps left. Returns the results by
    number, and the attempts that failed.
    """
    order = sorted(range(len(continuations)), key=lambda number: continuations[number].point.turn)
    finished: dict[int, _RestartResult] = {}
    failed: list[FailedEpisode] = []
    for first in range(0, len(order), vector.num_envs):
        batch = dict(enumerate(order[first : first + vector.num_envs]))
        result = play_part({row: _episode_spec(continuations[number], starts, vector) for row, number in batch.items()})
        failed += result.failed
        for row, player in result.players.items():
            finished[batch[row]] = _restart_result(player, continuations[batch[row]].point, gamma)
    return finished, failed


def _episode_spec(restart: _Restart, starts: Mapping[int, EpisodeStart], vector: TextVectorEnv) -> EpisodeSpec:
    point = restart.point
    group, start = point.episode // vector.group_size, starts[point.episode]
    return EpisodeSpec(group, start, restart.member, restart.seed, point.player, point.turn, point.responses_given)


def _restart_result(player: Player, point: _RestartPoint, gamma: float) -> _RestartResult:
    new_rows = player.rows[point.place :]
    rewards = np.array([row.reward for row in new_rows])
    return _RestartResult(
        earned=float(rewards @ gamma ** np.arange(len(rewards))),
        steps=player.turn - point.turn,
        tokens=response_tokens(row.tokens for row in new_rows),
    )


def _values(
    histories: Sequence[list[_RestartPoint]], continuations: Sequence[_Restart], results: Mapping[int, _RestartResult]
) -> dict[int, float]:
    """Return, by row identity, the mean return of its history's restarts; NaN without restarts."""
    returns_of_history: list[list[float]] = [[] for _ in histories]
    for number, result in sorted(results.items()):
        returns_of_history[continuations[number].history].append(result.earned)
    means = [float(np.mean(returns)) if returns else float("nan") for returns in returns_of_history]
    return {
        id(point.player.rows[point.place]): mean
        for points, mean in zip(histories, means, strict=True)
        for point in points
    }
