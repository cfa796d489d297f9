"""Restarts: continuations from moments of a rollout, whose mean return samples the value of a step.

A restart is the same policy once more from where a step began: the environment's state, the prompt's memory and the
steps left are those of that moment, answers and chance are its own. The moment is brought back by its actions, as
branches of a tree are, so that worker processes and environments without snapshots have restarts too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.statistics import check_shares
from hgpo_gym.envs.sub_envs import EpisodeStart
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import kept_and_dropped, rollout_of, rows_in_order
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.playing import EpisodeSpec, PlayedEpisodes, episode_specs, failed_groups_of, play, without_failed
from hgpo_gym.rollouts.rollout import FailedEpisode, Rollout, answer_tokens
from hgpo_gym.rollouts.teams.base import Solo, Team


class _Snapshot(NamedTuple):
    """Where a row of an episode began: the number of the episode, its player, the row's place among the player's."""

    episode: int
    player: Player
    place: int

    @property
    def turn(self) -> int:
        return self.player.rows[self.place].turn

    @property
    def answers(self) -> int:
        """How many answers of the turn came before."""
        return sum(row.turn == self.turn for row in self.player.rows[: self.place])


class _Restart(NamedTuple):
    """A continuation: the number of the history that it samples the value of, the moment that it begins at, and as
    which member of the group."""

    history: int
    moment: _Snapshot
    member: int
    seed: tuple[int, ...]


class _Played(NamedTuple):
    """What a continuation gave: its discounted return, its steps and the tokens of its answers."""

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
    """What `collect` plays, and from where each of its rows began `restarts` continuations, the mean of whose
    discounted returns is the extra `value`. Rows of a task group with equal histories (all that was seen and said since
    the start) share theirs, which begin in their episodes by turns.

    The episodes are those of `collect` at these seeds; restarts draw from the stream `RESTART`. They count as played
    and left out, without the way back to their moment, and are spread over the sub-environments as there are. What is
    not explained here is as in `collect`.

    Args:
        restarts: of each history.
        share: of the histories that have restarts, drawn each by itself; first rows always have them. The value of
            the others is NaN.
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
    players, _ = kept_and_dropped(first.players, first.failed_groups, size)
    histories = [moments for own in _by_group(players, size) for moments in _histories(own)]
    wanted = list(_restarts(histories, seeds, size, restarts, share))
    play_part = partial(play, env, policy, sampling, team=team, record=record, max_retries=max_retries)
    played, failed = _play_on(play_part, first.starts, wanted, gamma, vector)
    failed = [*first.failed, *failed]
    players, dropped = kept_and_dropped(first.players, failed_groups_of(failed), size)
    rollout = rollout_of(list(players.values()), env, size, invalid_action_penalty, record)
    values = _values(histories, wanted, played)
    value = np.array([values[id(row)] for row, _ in rows_in_order(list(players.values()))], dtype=np.float64)
    rollout = replace(
        rollout,
        batch=replace(rollout.batch, extras={**rollout.batch.extras, "value": value}),
        steps_left_out=sum(one.steps for one in played.values()),
        episodes_left_out=len(played),
        tokens_left_out=sum(one.tokens for one in played.values()),
    )
    return without_failed(rollout, failed, dropped)


def check_restarts(restarts: int, share: float, gamma: float) -> None:
    """Check the numbers of `collect_with_restarts`. Raises ValueError as it does."""
    if restarts < 1:
        raise ValueError(f"restarts={restarts}: a value needs 1 restart at least.")
    check_shares(share=share, gamma=gamma)


def _by_group(players: Mapping[int, Player], group_size: int) -> list[list[tuple[int, Player]]]:
    everybody = list(players.items())
    return [everybody[first : first + group_size] for first in range(0, len(everybody), group_size)]


def _histories(players: Sequence[tuple[int, Player]]) -> list[list[_Snapshot]]:
    """The moments of a group's players, those with equal histories together, in the order in which members come to
    them."""
    numbers: dict[tuple[object, ...], int] = {}
    found: dict[int, list[_Snapshot]] = {}
    for episode, player in players:
        before = -1
        for place, row in enumerate(player.rows):
            seen = (before, row.text.observation, row.text.admissible_actions, row.agent)
            now = numbers.setdefault(seen, len(numbers))
            found.setdefault(now, []).append(_Snapshot(episode, player, place))
            # What was said is the subgoal too: the next prompt shows it.
            said = (row.text.action, row.plan and row.plan.subgoal)
            before = numbers.setdefault((now, said), len(numbers))
    return list(found.values())


def _restarts(
    histories: Sequence[list[_Snapshot]],
    seeds: Sequence[tuple[int, ...]],
    group_size: int,
    restarts: int,
    share: float,
) -> Iterator[_Restart]:
    """Which continuations are played. A history's members have numbers of their own, whatever else is drawn."""
    generators = [np.random.default_rng((RandomStream.RESTART, *seed)) for _, *seed in seeds]
    so_far = [group_size] * len(seeds)
    for history, moments in enumerate(histories):
        group = moments[0].episode // group_size
        first, so_far[group] = so_far[group], so_far[group] + restarts
        drawn = generators[group].random() < share
        if drawn or moments[0].place == 0:
            for number in range(restarts):
                member = first + number
                seed = (RandomStream.RESTART, *seeds[group][1:], member)
                yield _Restart(history, moments[number % len(moments)], member, seed)


def _play_on(
    play_part: Callable[[dict[int, EpisodeSpec]], PlayedEpisodes],
    starts: Mapping[int, EpisodeStart],
    wanted: Sequence[_Restart],
    gamma: float,
    vector: TextVectorEnv,
) -> tuple[dict[int, _Played], list[FailedEpisode]]:
    """Play each of them, as many at a time as there are sub-environments. Those that begin at the same turn go
    together, since they have as many steps left. Returns those that ended, by number, and the attempts that failed."""
    order = sorted(range(len(wanted)), key=lambda number: wanted[number].moment.turn)
    ended: dict[int, _Played] = {}
    failed: list[FailedEpisode] = []
    for first in range(0, len(order), vector.num_envs):
        part = dict(enumerate(order[first : first + vector.num_envs]))
        played = play_part({row: _beginning(wanted[number], starts, vector) for row, number in part.items()})
        failed += played.failed
        for row, player in played.players.items():
            ended[part[row]] = _of_restart(player, wanted[part[row]].moment, gamma)
    return ended, failed


def _beginning(restart: _Restart, starts: Mapping[int, EpisodeStart], vector: TextVectorEnv) -> EpisodeSpec:
    moment = restart.moment
    group, start = moment.episode // vector.group_size, starts[moment.episode]
    return EpisodeSpec(group, start, restart.member, restart.seed, moment.player, moment.turn, moment.answers)


def _of_restart(player: Player, moment: _Snapshot, gamma: float) -> _Played:
    own = player.rows[moment.place :]
    rewards = np.array([row.reward for row in own])
    return _Played(
        earned=float(rewards @ gamma ** np.arange(len(rewards))),
        steps=player.turn - moment.turn,
        tokens=answer_tokens(row.tokens for row in own),
    )


def _values(
    histories: Sequence[list[_Snapshot]], wanted: Sequence[_Restart], played: Mapping[int, _Played]
) -> dict[int, float]:
    """By the identity of the row that began there, the mean of its history's restarts; NaN where there were none."""
    earned: list[list[float]] = [[] for _ in histories]
    for number, one in sorted(played.items()):
        earned[wanted[number].history].append(one.earned)
    means = [float(np.mean(own)) if own else float("nan") for own in earned]
    return {
        id(moment.player.rows[moment.place]): mean
        for moments, mean in zip(histories, means, strict=True)
        for moment in moments
    }
