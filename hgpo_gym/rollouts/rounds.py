"""Rounds of an iteration: groups without a learning signal are replaced by new ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.failures import check_failures
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, Rollout, merge, take_episodes
from hgpo_gym.rollouts.samplers.base import MOST_ROUNDS, GroupOutcome, Outcomes, Sampler
from hgpo_gym.rollouts.selection import checked

Play = Callable[[list[str], list[tuple[int, ...]]], Rollout]
"""Plays one group per task id and seed, in all processes together."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of an iteration: the rollout to learn from, and the counts of all that was played.

    Attributes:
        rollout: the selected groups, those of earlier rounds first.
        first_round: the episodes of round 0, which every run plays alike at this seed.
        outcomes: of every group played, in order; for the sampler's later iterations.
        steps: environment steps in all rounds.
        episodes: in all rounds.
        tokens: of all responses, in all rounds.
        rounds: their number.
        groups_kept: their number.
        failures: attempts at an episode whose environment failed, in all rounds.
        seconds: duration of all rounds.
    """

    rollout: Rollout
    first_round: tuple[EpisodeOutcome, ...]
    outcomes: tuple[GroupOutcome, ...]
    steps: int
    episodes: int
    tokens: int
    rounds: int
    groups_kept: int
    failures: tuple[FailedEpisode, ...] = ()
    seconds: float = 0.0


def collect_rounds(
    play: Play,
    sampler: Sampler,
    *,
    iteration: int,
    num_tasks: int,
    outcomes: Outcomes,
    assign: Callable[[Rollout], np.ndarray],
    max_failed: float = 1.0,
) -> Rounds:
    """Play an iteration's groups, and replace groups that failed or that the sampler finds uninformative.

    Every decision uses the merged rollout, so all processes decide alike. Round 0 plays the tasks of `sampler.tasks`
    from the seeds (stream, seed, iteration, group). Round k plays as many groups as are missing, from the seeds
    (stream, seed, iteration, k * num_tasks + group). The last round that the filter's `most_rounds` allows keeps all
    its groups. After it only failed groups are replaced, up to `MOST_ROUNDS` rounds in total.

    Args:
        play: see `Play`. A later round may have fewer groups than there are processes.
        sampler: names the tasks and selects groups.
        iteration: from 0.
        num_tasks: groups to learn from.
        outcomes: of earlier iterations.
        assign: returns the advantages float64[N] of a rollout; called only if the sampler selects groups.
        max_failed: the largest share of a round's groups that may be lost to failures.

    Raises:
        EpisodesFailedError: more groups were lost.
        ValueError: the sampler names a wrong number of tasks or an unknown one, or returns a wrong shape.
    """
    max_rounds = sampler.filter.most_rounds(iteration)
    parts: list[Rollout] = []
    selected: list[Rollout] = []
    missing = num_tasks
    while missing and len(parts) < max(max_rounds, MOST_ROUNDS):
        round_index = len(parts)
        tasks = sampler.tasks(iteration, missing, outcomes, round_index)
        first = round_index * num_tasks
        rollout = play(
            tasks, [(RandomStream.ROLLOUT, sampler.seed, iteration, first + group) for group in range(missing)]
        )
        parts.append(rollout)
        num_groups = int(rollout.groups.max(initial=-1)) + 1
        check_failures(rollout.failures, missing - num_groups, missing, max_failed, "task groups")
        informative = np.ones(num_groups, dtype=np.bool_)
        if len(parts) < max_rounds and sampler.filter.overrides("informative"):
            informative = sampler.filter.informative(rollout.batch, assign(rollout))
            checked(informative, num_groups, "group", sampler, "informative")
        selected.append(take_episodes(rollout, informative[rollout.groups]))
        missing -= int(informative.sum())
    return Rounds(
        rollout=merge(selected),
        first_round=parts[0].chains or parts[0].episodes,
        outcomes=tuple(outcome for part in parts for outcome in group_outcomes(part)),
        steps=sum(part.played_steps for part in parts),
        episodes=sum(part.played_episodes for part in parts),
        tokens=sum(part.played_tokens for part in parts),
        rounds=len(parts),
        groups_kept=num_tasks - missing,
        failures=tuple(episode for part in parts for episode in part.failures),
    )


def group_outcomes(rollout: Rollout) -> list[GroupOutcome]:
    """Return the outcome of each group, in order."""
    by_group: list[list[EpisodeOutcome]] = [[] for _ in range(rollout.groups.max(initial=-1) + 1)]
    for group, episode in zip(rollout.groups, rollout.episodes, strict=True):
        by_group[group].append(episode)
    return [_outcome(episodes) for episodes in by_group]


def _outcome(episodes: Sequence[EpisodeOutcome]) -> GroupOutcome:
    returns = [episode.episode_return for episode in episodes]
    wins = sum(episode.won for episode in episodes)
    return GroupOutcome(episodes[0].task_id, float(np.mean(returns)), wins, len(episodes))
