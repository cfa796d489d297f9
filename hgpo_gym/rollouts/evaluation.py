"""Evaluation: play the tasks of a split under several decoding seeds."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.plain_text import counted
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.processes import ALONE, Processes
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.conversations import RecordedEpisode, conversations
from hgpo_gym.rollouts.failures import check_failures, last_error
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, Rollout
from hgpo_gym.rollouts.samplers import spread
from hgpo_gym.rollouts.teams import Team
from hgpo_gym.runs.checkpoints import best_evaluation


@dataclass(frozen=True)
class Evaluation:
    """Results of the tasks of a split, one episode per task and decoding seed.

    Attributes:
        split: its name.
        episodes: for each decoding seed, one episode per task, in the order of the split.
        conversations: prompts and responses of the first episodes.
        failures: attempts at an episode whose environment failed. Failed episodes count as not won.
    """

    split: str
    episodes: tuple[tuple[EpisodeOutcome, ...], ...]
    conversations: tuple[RecordedEpisode, ...] = ()
    failures: tuple[FailedEpisode, ...] = ()

    @property
    def success(self) -> float:
        """Return the share of episodes that were won."""
        return float(np.mean([episode.won for run in self.episodes for episode in run]))

    @property
    def success_by_seed(self) -> list[float]:
        """Return the success under each decoding seed."""
        return [float(np.mean([episode.won for episode in run])) for run in self.episodes]

    @property
    def pass_at_k(self) -> dict[int, float]:
        """Return pass@k for k = 1, 2, 4, ... and the number of decoding seeds.

        pass@k is the chance that at least one of k episodes of a task is won, averaged over tasks. The estimator is
        unbiased (Chen et al., 2021, https://arxiv.org/abs/2107.03374).
        """
        seeds = len(self.episodes)
        tasks_by_wins = Counter(sum(episode.won for episode in task) for task in zip(*self.episodes, strict=True))
        return {
            k: sum(tasks * _chance_of_a_win(seeds, wins, k) for wins, tasks in tasks_by_wins.items())
            / len(self.episodes[0])
            for k in sorted({2**power for power in range(seeds.bit_length())} | {seeds})
        }

    def summary(self) -> dict[str, Any]:
        """Return the numbers of `summary.json`.

        They are success (overall, by decoding seed, by task type), pass@k, episode lengths and the share of valid
        actions. `won_episode_length` is None if no episode was won.
        """
        episodes = [episode for run in self.episodes for episode in run]
        by_type: dict[str, list[bool]] = defaultdict(list)
        for episode in episodes:
            by_type[episode.task_type].append(episode.won)
        steps = sum(episode.steps for episode in episodes)
        won = [episode.steps for episode in episodes if episode.won]
        return {
            "split": self.split,
            "success": self.success,
            "success_by_decoding_seed": self.success_by_seed,
            "success_by_task_type": {name: float(np.mean(wins)) for name, wins in sorted(by_type.items())},
            "pass_at_k": {str(k): chance for k, chance in self.pass_at_k.items()},
            "tasks": len(self.episodes[0]),
            "episodes": len(episodes),
            "episode_length": steps / len(episodes),
            "won_episode_length": sum(won) / len(won) if won else None,
            "episode_return": float(np.mean([episode.episode_return for episode in episodes])),
            "valid_action_rate": sum(episode.valid_steps for episode in episodes) / steps,
            "failed": self.failed,
        }

    @property
    def failed(self) -> int:
        """Return the number of episodes whose environment failed at every attempt."""
        return sum(episode.failed for episode in self.failures)

    @property
    def failures_line(self) -> str:
        """Return one line about the failures for a reader; empty if there are none."""
        if not self.failures:
            return ""
        return (
            f"Environments failed in {counted(len(self.failures), 'attempt')} at an episode; of those that failed each "
            f"time ({self.failed}) none counts as won. {last_error(self.failures)}"
        )


def _chance_of_a_win(episodes: int, wins: int, k: int) -> float:
    """Return the chance that at least one of k episodes, drawn without replacement, is won."""
    return 1 - comb(episodes - wins, k) / comb(episodes, k)


def evaluate(
    env: ContextWrapper,
    policy: Policy,
    sampling: Sampling,
    decoding_seeds: Sequence[int],
    on_progress: Callable[[int, int, int], None] | None = None,
    processes: Processes = ALONE,
    team: Team | None = None,
    tasks: int | None = None,
    keep: int | None = 0,
    max_retries: int = 0,
    max_failed: float = 1.0,
) -> Evaluation:
    """Play tasks of the environment's split under every decoding seed.

    An episode depends only on its task and decoding seed, not on how many episodes run in parallel.

    Args:
        env: a `TextVectorEnv` with group size 1 in a `ContextWrapper`.
        policy: plays the episodes.
        sampling: how the policy draws tokens.
        decoding_seeds: at least one.
        on_progress: called with (episodes done, episodes in total, steps so far) of this process.
        processes: share the work; each process gets the whole result.
        team: the roles that respond; None is a single agent.
        tasks: how many tasks, evenly spread over the split, the same in every evaluation; None plays all.
        keep: how many episodes keep their prompts and responses; None keeps all.
        max_retries: how often an episode is played again if its environment fails. After that it counts as not won.
        max_failed: the largest share of episodes that may fail.

    Raises:
        EpisodesFailedError: more episodes failed.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    if vector.group_size != 1:
        raise ValueError(f"An evaluation needs environments with group_size=1, not {vector.group_size}.")
    selected = spread(len(vector.task_ids), tasks)
    jobs = [(task, seed) for seed in decoding_seeds for task in selected]
    collect_part = partial(collect, env, policy, sampling, team=team, max_retries=max_retries)
    outcomes, failed, transcripts = _play(collect_part, vector, processes.share(jobs), on_progress, keep)
    episodes, failures = processes.gather(outcomes), processes.gather(failed)
    check_failures(
        failures, sum(episode.failed for episode in failures), len(jobs), max_failed, "episodes of an evaluation"
    )
    by_seed = (tuple(episodes[start : start + len(selected)]) for start in range(0, len(episodes), len(selected)))
    return Evaluation(vector.split, tuple(by_seed), tuple(processes.gather(transcripts)[:keep]), tuple(failures))


def _play(
    collect_part: Callable[..., Rollout],
    vector: TextVectorEnv,
    jobs: Sequence[tuple[int, int]],
    on_progress: Callable[[int, int, int], None] | None,
    keep: int | None,
) -> tuple[list[EpisodeOutcome], list[FailedEpisode], list[RecordedEpisode]]:
    """Play jobs, each the index of a task and a decoding seed, as many at a time as there are sub-environments."""
    outcomes: list[EpisodeOutcome] = []
    failed: list[FailedEpisode] = []
    transcripts: list[RecordedEpisode] = []
    steps = ended = 0

    def count_steps(more_steps: int, more_ended: int) -> None:
        nonlocal steps, ended
        steps, ended = steps + more_steps, ended + more_ended
        if on_progress:
            on_progress(ended, len(jobs), steps)

    for start in range(0, len(jobs), vector.num_tasks):
        batch = jobs[start : start + vector.num_tasks]
        rollout = collect_part(
            task_ids=[vector.task_ids[task] for task, _ in batch],
            seeds=[(RandomStream.EVALUATION, seed, task) for task, seed in batch],
            on_progress=count_steps,
        )
        outcomes += _outcomes(rollout, len(batch))
        failed += rollout.failures
        transcripts += conversations(rollout, None if keep is None else max(0, keep - len(transcripts)))
    return outcomes, failed, transcripts


def _outcomes(rollout: Rollout, count: int) -> list[EpisodeOutcome]:
    """Return `count` outcomes in task order; failed episodes keep their position."""
    failed = {episode.group: episode.outcome for episode in rollout.failures if episode.failed}
    ended = iter(rollout.episodes)
    return [failed[place] if place in failed else next(ended) for place in range(count)]


def eval_drop(summaries: Sequence[dict[str, Any]]) -> float:
    """Return how far the last evaluation lies below the best one, in standard errors; 0 if it is the best.

    The standard error is that of the difference of two independent shares of as many episodes.
    """
    best, last = best_evaluation(summaries)["success"], summaries[-1]["success"]
    if best == last:
        return 0.0
    # Pooled share: under equal success rates both evaluations have its variance.
    middle = (best + last) / 2
    return float((best - last) / np.sqrt(2 * middle * (1 - middle) / summaries[-1]["episodes"]))
