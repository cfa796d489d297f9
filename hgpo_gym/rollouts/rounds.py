"""The rounds of an iteration: what is played, and played anew where it taught nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.failures import check_failures
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, Rollout, merge, take_episodes
from hgpo_gym.rollouts.samplers.base import MOST_ROUNDS, GroupOutcome, Outcomes, Sampler
from hgpo_gym.rollouts.selection import checked, overrides

Play = Callable[[list[str], list[tuple[int, ...]]], Rollout]
"""Plays a group of each of these tasks from each of these seeds, in all processes together."""


@dataclass(frozen=True)
class Rounds:
    """What an iteration has played, and what it learns from.

    Attributes:
        rollout: the groups that were kept, those of earlier rounds first.
        first_round: the episodes of round 0, which every run plays alike at this seed.
        outcomes: of every group that was played, in order; for the sampler's later iterations.
        steps: of the environment, in all rounds.
        episodes: in all rounds.
        tokens: of all answers, in all rounds.
        rounds: how many.
        groups_kept: how many.
        failures: attempts at an episode whose environment failed, in all rounds.
        seconds: that all of it took.
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
    """Play an iteration's groups, and others in place of those that the sampler does not find informative, or that
    failed.

    Everything is decided on the merged rollout, so that all processes decide alike. Round 0 plays the tasks that
    `sampler.tasks` names from the seeds (stream, seed, iteration, group); round k plays as many as are missing, from
    (stream, seed, iteration, k * num_tasks + group). The groups of the last round that `sampler.most_rounds` allows are
    kept whatever they are; after it only those that failed are played anew, up to `MOST_ROUNDS` in all.

    Args:
        play: see `Play`. A later round may have fewer groups than there are processes.
        sampler: decides.
        iteration: from 0.
        num_tasks: groups to learn from.
        outcomes: of the iterations before.
        assign: the advantages float64[N] of a rollout; asked only where the sampler looks at groups.
        max_failed: the largest share of a round's groups that may be lost to environments that fail.

    Raises:
        EpisodesFailedError: more are.
        ValueError: the sampler names another number of tasks, or an unknown one, or answers in another shape.
    """
    most = sampler.most_rounds(iteration)
    parts: list[Rollout] = []
    kept: list[Rollout] = []
    missing = num_tasks
    while missing and len(parts) < max(most, MOST_ROUNDS):
        number = len(parts)
        if number:
            tasks = sampler.redraw(iteration, number, missing, outcomes)
        else:
            tasks = sampler.tasks(iteration, missing, outcomes)
        if len(tasks) != missing:
            raise ValueError(f"{sampler.described} names {len(tasks)} tasks for {missing} groups.")
        first = number * num_tasks
        rollout = play(
            list(tasks), [(RandomStream.ROLLOUT, sampler.seed, iteration, first + group) for group in range(missing)]
        )
        parts.append(rollout)
        there = int(rollout.groups.max(initial=-1)) + 1
        check_failures(rollout.failures, missing - there, missing, max_failed, "task groups")
        chosen = np.ones(there, dtype=np.bool_)
        if len(parts) < most and overrides(sampler, "informative"):
            chosen = sampler.informative(rollout.batch, assign(rollout))
            checked(chosen, there, "group", sampler, "informative")
        kept.append(take_episodes(rollout, chosen[rollout.groups]))
        missing -= int(chosen.sum())
    return Rounds(
        rollout=merge(kept),
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
    """How each group went, in order."""
    by_group: list[list[EpisodeOutcome]] = [[] for _ in range(rollout.groups.max(initial=-1) + 1)]
    for group, episode in zip(rollout.groups, rollout.episodes, strict=True):
        by_group[group].append(episode)
    return [_outcome(episodes) for episodes in by_group]


def _outcome(episodes: Sequence[EpisodeOutcome]) -> GroupOutcome:
    returns = [episode.episode_return for episode in episodes]
    wins = sum(episode.won for episode in episodes)
    return GroupOutcome(episodes[0].task_id, float(np.mean(returns)), wins, len(episodes))
