"""Evaluation: every task of the split, or some of them, under several decoding seeds."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from hgpo_gym.rollouts.conversations import Conversation, conversations
from hgpo_gym.rollouts.failures import check_failures, last_error
from hgpo_gym.rollouts.rollout import EpisodeOutcome, FailedEpisode, Rollout
from hgpo_gym.rollouts.samplers import spread
from hgpo_gym.rollouts.teams import Team
from hgpo_gym.runs.checkpoints import best_evaluation


@dataclass(frozen=True)
class Evaluation:
    """Every task of a split, or some of them, `decoding_seeds` times.

    Attributes:
        split: its name.
        episodes: for each decoding seed, one episode a task, in the order of the split.
        conversations: what was said in the first of them.
        failures: attempts at an episode whose environment failed. Those that were given up count as not won.
    """

    split: str
    episodes: tuple[tuple[EpisodeOutcome, ...], ...]
    conversations: tuple[Conversation, ...] = ()
    failures: tuple[FailedEpisode, ...] = ()

    @property
    def success(self) -> float:
        """The share of episodes that were won."""
        return float(np.mean([episode.won for run in self.episodes for episode in run]))

    @property
    def success_by_seed(self) -> list[float]:
        """The success under each decoding seed."""
        return [float(np.mean([episode.won for episode in run])) for run in self.episodes]

    @property
    def pass_at_k(self) -> dict[int, float]:
        """pass@k: the chance that one of k episodes of a task is won, the mean over tasks; for k = 1, 2, 4 and so on,
        and all decoding seeds. Unbiased, as by Chen et al., 2021 (https://arxiv.org/abs/2107.03374)."""
        seeds = len(self.episodes)
        tasks_by_wins = Counter(sum(episode.won for episode in task) for task in zip(*self.episodes, strict=True))
        return {
            k: sum(tasks * _chance_of_a_win(seeds, wins, k) for wins, tasks in tasks_by_wins.items())
            / len(self.episodes[0])
            for k in sorted({2**power for power in range(seeds.bit_length())} | {seeds})
        }

    def summary(self) -> dict[str, Any]:
        """Numbers for `summary.json`: success in all, by decoding seed, by task type; pass@k, lengths, valid actions.

        `won_episode_length` is None where no episode was won.
        """
        everything = [episode for run in self.episodes for episode in run]
        by_type: dict[str, list[bool]] = defaultdict(list)
        for episode in everything:
            by_type[episode.task_type].append(episode.won)
        steps = sum(episode.steps for episode in everything)
        won = [episode.steps for episode in everything if episode.won]
        return {
            "split": self.split,
            "success": self.success,
            "success_by_decoding_seed": self.success_by_seed,
            "success_by_task_type": {name: float(np.mean(wins)) for name, wins in sorted(by_type.items())},
            "pass_at_k": {str(k): chance for k, chance in self.pass_at_k.items()},
            "tasks": len(self.episodes[0]),
            "episodes": len(everything),
            "episode_length": steps / len(everything),
            "won_episode_length": sum(won) / len(won) if won else None,
            "episode_return": float(np.mean([episode.episode_return for episode in everything])),
            "valid_action_rate": sum(episode.valid_steps for episode in everything) / steps,
            "failed": self.failed,
        }

    @property
    def failed(self) -> int:
        """Episodes whose environment failed each time that it was tried."""
        return sum(episode.failed for episode in self.failures)

    @property
    def failures_told(self) -> str:
        """A line on them for a person; empty where there are none."""
        if not self.failures:
            return ""
        return (
            f"Environments failed in {counted(len(self.failures), 'attempt')} at an episode; of those that failed each "
            f"time ({self.failed}) none counts as won. {last_error(self.failures)}"
        )


def _chance_of_a_win(episodes: int, wins: int, k: int) -> float:
    """That of k episodes, drawn from these without putting any back, at least one is won."""
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
    """Play every task of the environment's split under every decoding seed, or some of them.

    An episode depends on its task and decoding seed alone, not on how many run side by side.

    Args:
        env: a `TextVectorEnv` with group size 1 in a `ContextWrapper`.
        policy: who plays.
        sampling: how it draws tokens.
        decoding_seeds: at least one.
        on_progress: called with (episodes done, episodes in all, steps so far), of this process, as they are played.
        processes: that share the work; all get the whole result.
        team: who answers; None is an agent by itself.
        tasks: how many, evenly spread over the split, the same in every evaluation; None plays all.
        keep: of how many episodes what was said is kept; None keeps all.
        max_retries: how often an episode is played again whose environment fails; after that it is not won.
        max_failed: the largest share of the episodes that may come to that.

    Raises:
        EpisodesFailedError: more do.
    """
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    if vector.group_size != 1:
        raise ValueError(f"An evaluation needs environments with group_size=1, not {vector.group_size}.")
    everything = vector.task_ids
    chosen = spread(len(everything), tasks)
    jobs = [(task, seed) for seed in decoding_seeds for task in chosen]
    own = processes.share(jobs)
    played: list[EpisodeOutcome] = []
    said: list[Conversation] = []
    failed: list[FailedEpisode] = []
    steps = ended = 0

    def count_steps(more_steps: int, more_ended: int) -> None:
        nonlocal steps, ended
        steps, ended = steps + more_steps, ended + more_ended
        if on_progress:
            on_progress(ended, len(own), steps)

    for start in range(0, len(own), vector.num_tasks):
        part = own[start : start + vector.num_tasks]
        rollout = collect(
            env,
            policy,
            sampling,
            task_ids=[everything[task] for task, _ in part],
            seeds=[(RandomStream.EVALUATION, seed, task) for task, seed in part],
            team=team,
            on_progress=count_steps,
            max_retries=max_retries,
        )
        played += _outcomes(rollout, len(part))
        failed += rollout.failures
        said += conversations(rollout, None if keep is None else max(0, keep - len(said)))
    episodes, failures = processes.gather(played), processes.gather(failed)
    check_failures(failures, sum(one.failed for one in failures), len(jobs), max_failed, "episodes of an evaluation")
    by_seed = (tuple(episodes[start : start + len(chosen)]) for start in range(0, len(episodes), len(chosen)))
    return Evaluation(vector.split, tuple(by_seed), tuple(processes.gather(said)[:keep]), tuple(failures))


def _outcomes(rollout: Rollout, count: int) -> list[EpisodeOutcome]:
    """Of groups of one, those that were given up in their places."""
    failed = {episode.group: episode.outcome for episode in rollout.failures if episode.failed}
    ended = iter(rollout.episodes)
    return [failed[place] if place in failed else next(ended) for place in range(count)]


def eval_drop(summaries: Sequence[dict[str, Any]]) -> float:
    """How far the last of these evaluations lies below the best of them, in standard errors of the difference of two
    shares of as many episodes, each drawn by itself; 0 where it is the best."""
    best, last = best_evaluation(summaries)["success"], summaries[-1]["success"]
    if best == last:
        return 0.0
    middle = (best + last) / 2
    return float((best - last) / np.sqrt(2 * middle * (1 - middle) / summaries[-1]["episodes"]))
