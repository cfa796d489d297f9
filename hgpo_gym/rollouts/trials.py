"""Plan trials: some episodes of a task try new plans, and the rest execute the plan with the highest return.

A plan is the team's messages before its first action. Every episode under a plan has it in its trajectory.
`StepBatch.trained` is true on only the first copy, so no token is trained twice.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hgpo_gym.advantages.statistics import joint_labels
from hgpo_gym.envs.sub_envs import EpisodeStart
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.rollouts.collect import rollout_of, rows_in_order
from hgpo_gym.rollouts.player import Player, StepRecord
from hgpo_gym.rollouts.playing import EpisodeSpec, episode_specs, failed_groups_of, play
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.rollouts.teams.base import Solo, Team


class _Trial(NamedTuple):
    """An episode with a new plan: its player, its start, and the number of responses before its first action."""

    player: Player
    start: EpisodeStart
    responses_given: int

    @property
    def plan(self) -> tuple[str, ...]:
        return tuple(row.text.action for row in self.player.rows[: self.responses_given])


def collect_under_best_plan(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    *,
    task_ids: Sequence[str],
    seeds: Sequence[tuple[int, ...]],
    trials: int,
    invalid_action_penalty: float = 0.0,
    team: Team | None = None,
    record: Sequence[str] = (),
    max_retries: int = 0,
) -> Rollout:
    """Play `trials` episodes of every task, then the rest of each group, the executions, under the best plan.

    The best plan has the highest mean return of its trials; the earliest wins a tie. The trials are the first members
    of the groups that `collect` plays at these seeds. The extras are those of `collect` and:

    - `plan`: of the episode, equal if the plans' texts are equal;
    - `opening`: the rows of the plan;
    - `execution`: the episode is an execution;
    - `answer`: equal for the copies of a response in the group.

    Other arguments are those of `collect`.

    Raises:
        ValueError: fewer than 2 trials or executions, or a team whose first response is an action.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    size = vector.group_size
    check_episodes(trials, size - trials)
    if not task_ids:
        return rollout_of([], env, size, invalid_action_penalty, record)
    play_all = partial(play, env, policy, sampling, team=team or Solo(), record=record, max_retries=max_retries)
    first = play_all(episode_specs(task_ids, seeds, trials, size))
    tried = {
        row: _Trial(player, first.starts[row], _responses_before_action(player, team or Solo()))
        for row, player in first.players.items()
    }
    groups = [group for group in range(len(task_ids)) if group not in first.failed_groups]
    plan_of: dict[int, int] = {}
    for group in groups:
        trial_rows = range(group * size, group * size + trials)
        plan_of |= {row: row for row in trial_rows}
        plan_of |= dict.fromkeys(range(trial_rows.stop, (group + 1) * size), _best(tried, trial_rows))
    second = play_all({row: _execution(row, tried[best], seeds, size) for row, best in plan_of.items() if row != best})
    failed = [*first.failed, *second.failed]
    players, failed_groups = {**first.players, **second.players}, failed_groups_of(failed)
    in_whole_groups = [row for row in sorted(plan_of) if row // size not in failed_groups]
    episode_of = {row: episode for episode, row in enumerate(in_whole_groups)}
    kept_players = [players[row] for row in in_whole_groups]
    trial_of_episode = {episode_of[row]: trial for row, trial in tried.items() if row in episode_of}
    extras, trained = _plan_columns(
        rows_in_order(kept_players),
        trial_of_episode,
        np.array([episode_of[plan_of[row]] for row in in_whole_groups], dtype=np.int64),
    )
    return rollout_of(
        kept_players,
        env,
        size,
        invalid_action_penalty,
        record,
        extras=extras,
        trained=trained,
        chains=[trial.player.outcome for trial in trial_of_episode.values()],
        failed=failed,
        dropped=[player for row, player in players.items() if row not in episode_of],
    )


def _execution(row: int, trial: _Trial, seeds: Sequence[tuple[int, ...]], size: int) -> EpisodeSpec:
    """Return the starting point of an execution, after the plan of its trial."""
    group, member = divmod(row, size)
    seed = (*seeds[group], member)
    return EpisodeSpec(group, trial.start, member, seed, trial.player, turn=0, responses_given=trial.responses_given)


def check_episodes(trials: int, executions: int) -> None:
    """Check the numbers of `collect_under_best_plan`. Raises ValueError as it does."""
    for name, value in (("trials", trials), ("executions", executions)):
        if value < 2:
            raise ValueError(f"{name}={value}: at least 2 are needed, to compare them with one another.")


def _responses_before_action(player: Player, team: Team) -> int:
    acts = team.roles.index(team.acting_role)
    before = next(place for place, row in enumerate(player.rows) if row.agent == acts)
    if not before:
        raise ValueError(
            "sampler=best_plan compares what a team says before it acts, and this one acts first. "
            "Choose a team that plans, such as team=planner_actor."
        )
    return before


def _best(trials: Mapping[int, _Trial], group: Sequence[int]) -> int:
    """Return the group's first trial whose plan has the highest mean return."""
    returns_of_plan: dict[tuple[str, ...], list[float]] = {}
    for episode in group:
        returns_of_plan.setdefault(trials[episode].plan, []).append(trials[episode].player.outcome.episode_return)
    return max(group, key=lambda episode: float(np.mean(returns_of_plan[trials[episode].plan])))


def _plan_columns(
    rows: Sequence[tuple[StepRecord, int]], trials: Mapping[int, _Trial], plan_of: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the plan columns, and which rows are trained.

    Args:
        rows: each with its episode, in the order of the rollout.
        trials: by episode.
        plan_of: int64[episodes], the trial whose plan the episode has.
    """
    plans: dict[tuple[str, ...], int] = {}
    plan = np.array(
        [plans.setdefault(trials[trial_index].plan, len(plans)) for trial_index in plan_of.tolist()], dtype=np.int64
    )
    execution = plan_of != np.arange(len(plan_of))
    episode = np.array([index for _, index in rows], dtype=np.int64)
    place = np.array([row.step for row, _ in rows], dtype=np.int64)
    opening = place < np.array([trials[trial_index].responses_given for trial_index in plan_of.tolist()])[episode]
    # Executions repeat the plan of their trial: only the trial's rows of it are trained.
    copied = opening & execution[episode]
    extras = {
        "plan": plan[episode],
        "opening": opening,
        "execution": execution[episode],
        "response": joint_labels(np.where(copied, plan_of[episode], episode), place),
    }
    return extras, ~copied
