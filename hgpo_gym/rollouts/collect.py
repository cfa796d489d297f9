"""Rollouts: a policy acts in a vector of environments until every episode has ended."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.similar import cluster_observations
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.rollouts.player import Player, StepRecord
from hgpo_gym.rollouts.playing import ProgressCallback, episode_specs, play
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, Rollout, response_tokens
from hgpo_gym.rollouts.teams.base import Solo, Team


def collect(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    *,
    task_ids: Sequence[str],
    seeds: Sequence[tuple[int, ...]],
    invalid_action_penalty: float = 0.0,
    team: Team | None = None,
    record: Sequence[str] = (),
    on_progress: ProgressCallback | None = None,
    max_retries: int = 0,
) -> Rollout:
    """Run one episode in every sub-environment. Episodes that have ended send no more requests to the policy.

    A policy with its own stream gets the next request as soon as an environment has stepped. No episode then waits for
    a slow environment or a long response. With any other policy all environments step together. Both give the same
    rows, ordered by step, then environment. Their extras are:

    - `agent`: the role that wrote the response;
    - `turn`: the environment step that the response belongs to;
    - `truncated`: the step limit ended the episode;
    - the columns of `record`.

    Args:
        env: a `TextVectorEnv` in a `ContextWrapper`.
        policy: responds to the prompts.
        sampling: how the policy draws tokens.
        task_ids: the task of each group. With fewer tasks than groups, the other groups stay idle; may be empty.
        seeds: for each group, the seed of everything random in its episodes.
        invalid_action_penalty: becomes the batch's `penalty` at steps whose action was not valid.
        team: the roles, and which response is the action. None is a single agent.
        record: numbers that the environment puts in the info of a step. Each becomes an extra of the batch, 0 on rows
            after which the environment did not step.
        on_progress: see `ProgressCallback`.
        max_retries: how often an episode is played again if its environment fails, where environments contain failures.
            After that its group is left out; the rollout's `failures` list every attempt.

    Raises:
        ValueError: the environment's info lacks a number to record.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    size = vector.group_size
    specs = episode_specs(task_ids, seeds, size, size)
    result = play(
        env, policy, sampling, specs, team or Solo(), record, max_retries=max_retries, on_progress=on_progress
    )
    whole_groups, dropped = whole_and_dropped(result.players, result.failed_groups, size)
    return rollout_of(
        list(whole_groups.values()), env, size, invalid_action_penalty, record, failed=result.failed, dropped=dropped
    )


class LeftOut(NamedTuple):
    """Counts of what was played but is not part of a rollout."""

    steps: int = 0
    episodes: int = 0
    tokens: int = 0


def whole_and_dropped(
    players: Mapping[int, Player], failed_groups: set[int], group_size: int
) -> tuple[dict[int, Player], list[Player]]:
    """Return the players of complete groups by row, in order, and the players of groups with a failed episode."""
    in_whole_groups = {row: player for row, player in sorted(players.items()) if row // group_size not in failed_groups}
    return in_whole_groups, [player for row, player in players.items() if row not in in_whole_groups]


def rollout_of(
    players: Sequence[Player],
    env: ContextWrapper,
    group_size: int,
    invalid_action_penalty: float,
    record: Sequence[str],
    *,
    extras: Mapping[str, np.ndarray] | None = None,
    trained: np.ndarray | None = None,
    chains: Sequence[EpisodeOutcome] | None = None,
    left_out: LeftOut = LeftOut(),  # noqa: B008 - immutable
    failed: Sequence[FailedEpisode] = (),
    dropped: Sequence[Player] = (),
) -> Rollout:
    """Return the episodes of finished players as a rollout, group after group; every collector ends so.

    Args:
        players: of the episodes, those of a group adjacent; see `collect` for the order of their rows.
        env, invalid_action_penalty, record: see `collect`.
        group_size: episodes of a group.
        extras: further columns, in the order of `rows_in_order`.
        trained: bool[N], false on copies of responses that several episodes share; None without copies.
        chains: where episodes branch, those that were played from the start of their task.
        left_out: what the collector played besides, where no environment failed.
        failed: the attempts whose environment failed.
        dropped: players whose episodes ended, in groups with a failed episode.
    """
    indexed = rows_in_order(players)
    rows, trajectory = [row for row, _ in indexed], np.array([index for _, index in indexed], dtype=np.int64)
    outcomes = tuple(player.outcome for player in players)
    valid = np.array([row.valid for row in rows], dtype=np.bool_)
    shape = (len(rows), env.history_length + 1)
    batch = StepBatch(
        group=trajectory // group_size,
        trajectory=trajectory,
        step=np.array([row.step for row in rows], dtype=np.int64),
        reward=np.array([row.reward for row in rows], dtype=np.float64),
        context_keys=np.array([row.keys for row in rows], dtype=np.int64).reshape(shape),
        penalty=np.where(valid, 0.0, invalid_action_penalty),
        # Hashes are unsigned 64-bit numbers: a view keeps the bits, a cast would overflow.
        action=np.array([row.action for row in rows], dtype=np.uint64).view(np.int64),
        success=np.array([outcomes[index].won for index in trajectory], dtype=np.bool_),
        final_keys=np.array([players[index].final_keys for index in trajectory], dtype=np.int64).reshape(shape),
        extras={
            "agent": np.array([row.agent for row in rows], dtype=np.int64),
            "turn": np.array([row.turn for row in rows], dtype=np.int64),
            "truncated": np.array([players[index].truncated for index in trajectory], dtype=np.bool_),
            **{name: _column([row.extras.get(name) for row in rows]) for name in record},
            **{
                name: np.array([row.extras[name] for row in rows], dtype=kind)
                for name, kind in env.prompt.prefix.columns.items()
            },
            **(extras or {}),
        },
        trained=trained,
        texts={key: text for player in players for key, text in player.states.items()},
    )
    if env.similarity is not None:
        batch = cluster_observations(batch, batch.texts or {}, env.similarity, key=env.key)
    dropped_rows = list({id(row): row for player in dropped for row in player.rows}.values())
    # Where a response is shared, its rows may be copies: their tokens are one object.
    dropped_responses = {id(row.tokens): row.tokens for row in dropped_rows}.values()
    return Rollout(
        batch=batch,
        tokens=tuple(row.tokens for row in rows),
        steps=tuple(row.text for row in rows),
        episodes=outcomes,
        steps_left_out=left_out.steps
        + sum(row.last_of_turn for row in dropped_rows)
        + sum(episode.steps for episode in failed),
        episodes_left_out=left_out.episodes + len(dropped) + len(failed),
        tokens_left_out=left_out.tokens
        + response_tokens(dropped_responses)
        + sum(episode.tokens for episode in failed),
        chains=None if chains is None else tuple(chains),
        failures=tuple(failed),
    )


def rows_in_order(players: Sequence[Player]) -> list[tuple[StepRecord, int]]:
    """Return the rows of players, each with its player's index, ordered by step, then player."""
    rows = [(row, index) for index, player in enumerate(players) for row in player.rows]
    return sorted(rows, key=lambda indexed: (indexed[0].step, indexed[1]))


def _column(values: Sequence[Any]) -> np.ndarray:
    """Return the numbers of every row as bool, int64 or float64; 0 where a row has none."""
    present = np.array([value for value in values if value is not None])
    kind = {"b": np.bool_, "i": np.int64, "u": np.int64}.get(present.dtype.kind, np.float64)
    return np.array([0 if value is None else value for value in values], dtype=kind)
