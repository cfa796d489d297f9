"""Rollouts: a policy acts in a vector of environments until every episode has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.rollouts.plans import plan_columns
from hgpo_gym.rollouts.player import Player, StepRecord
from hgpo_gym.rollouts.playing import ProgressCallback, episode_specs, play, without_failed
from hgpo_gym.rollouts.rollout import Rollout
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
    """Run one episode in every sub-environment; nothing is asked of the policy for episodes that have ended.

    A policy that has a stream of its own is asked about an environment as soon as that one has stepped, so that nobody
    waits for a slow environment or a long answer; for the others all environments step together. The rows come out the
    same: by step, then environment. Their extras are `agent`, the role that answered, `turn`, the step of the
    environment that it belongs to, `truncated`, whether the step limit ended the episode, and those of `record`.

    Args:
        env: a `TextVectorEnv` in a `ContextWrapper`.
        policy: answers the prompts.
        sampling: how it draws tokens.
        task_ids: the task of each group. With fewer tasks than groups, the other groups stay idle; there may be none.
        seeds: for each group, the numbers that everything random in its episodes is drawn from.
        invalid_action_penalty: becomes the batch's `penalty` at steps whose action was not valid.
        team: who answers, and when an answer is the action. None is an agent by itself.
        record: numbers that the environment puts in the info of a step; each becomes one of the batch's extras, 0 on
            rows after which the environment did not step.
        on_progress: see `ProgressCallback`.
        max_retries: how often an episode is played again if its environment fails, where environments contain failures.
            After that its group is left out; the rollout's `failures` have it all.

    Raises:
        ValueError: the environment does not say what is to be recorded.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    size = vector.group_size
    wanted = episode_specs(task_ids, seeds, size, size)
    played = play(
        env, policy, sampling, wanted, team or Solo(), record, max_retries=max_retries, on_progress=on_progress
    )
    kept, dropped = kept_and_dropped(played.players, played.failed_groups, size)
    rollout = rollout_of(list(kept.values()), env, size, invalid_action_penalty, record)
    return without_failed(rollout, played.failed, dropped)


def kept_and_dropped(
    players: Mapping[int, Player], failed_groups: set[int], group_size: int
) -> tuple[dict[int, Player], list[Player]]:
    """The players of whole groups, in order, and those of groups that were given up."""
    kept = {row: player for row, player in sorted(players.items()) if row // group_size not in failed_groups}
    return kept, [player for row, player in players.items() if row not in kept]


def rollout_of(
    players: Sequence[Player],
    env: ContextWrapper,
    group_size: int,
    invalid_action_penalty: float,
    record: Sequence[str],
) -> Rollout:
    """The episodes of players that have ended, groups one after the other; see `collect` for the rows."""
    own = rows_in_order(players)
    rows, trajectory = [row for row, _ in own], np.array([index for _, index in own], dtype=np.int64)
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
        action=np.array([row.action for row in rows], dtype=np.uint64).view(np.int64),
        success=np.array([outcomes[index].won for index in trajectory], dtype=np.bool_),
        final_keys=np.array([players[index].final_keys for index in trajectory], dtype=np.int64).reshape(shape),
        extras={
            "agent": np.array([row.agent for row in rows], dtype=np.int64),
            "turn": np.array([row.turn for row in rows], dtype=np.int64),
            "truncated": np.array([players[index].truncated for index in trajectory], dtype=np.bool_),
            **{name: _column([row.extras.get(name) for row in rows]) for name in record},
            **({} if env.prompt.subgoals is None else plan_columns([row.plan for row in rows if row.plan])),
        },
    )
    return Rollout(batch, tuple(row.tokens for row in rows), tuple(row.text for row in rows), outcomes)


def rows_in_order(players: Sequence[Player]) -> list[tuple[StepRecord, int]]:
    """The rows of players, each with the number of its player: by step, then player."""
    rows = [(row, index) for index, player in enumerate(players) for row in player.rows]
    return sorted(rows, key=lambda own: (own[0].step, own[1]))


def _column(values: Sequence[Any]) -> np.ndarray:
    """The numbers of every row: bool, int64 or float64; 0 where there is none."""
    there = np.array([value for value in values if value is not None])
    kind = {"b": np.bool_, "i": np.int64, "u": np.int64}.get(there.dtype.kind, np.float64)
    return np.array([0 if value is None else value for value in values], dtype=kind)
