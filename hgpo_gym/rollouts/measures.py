"""Measures of every task before training, for samplers that need them. A run plays them once and stores them."""

from collections.abc import Callable
from typing import NamedTuple

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Sampling
from hgpo_gym.policies.scripted import ExpertPolicy
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.failures import check_failures
from hgpo_gym.rollouts.rollout import FailedEpisode
from hgpo_gym.rollouts.rounds import Play
from hgpo_gym.rollouts.samplers.base import Sampler
from hgpo_gym.suggest import unknown_name

MEASURES = ("win_rate", "expert_length")


class TaskMeasures(NamedTuple):
    """A number for every task, and the cost of measuring.

    Attributes:
        values: by task id, as JSON; None where a task has no value.
        steps, episodes, tokens: played by the policy; the expert's do not count.
        seconds: duration of the measurement.
    """

    values: dict[str, float | None]
    steps: int
    episodes: int
    tokens: int = 0
    seconds: float = 0.0


def measure_tasks(
    sampler: Sampler,
    play: Play,
    make_expert_env: Callable[[], ContextWrapper],
    *,
    num_tasks: int,
    group_size: int,
    max_retries: int = 0,
    max_failed: float = 1.0,
) -> TaskMeasures:
    """Measure every task as the curriculum asks; set the result as `sampler.measured`.

    `win_rate` is the share of `episodes_before` episodes that the policy wins. `expert_length` is the number of
    steps of the environment's expert, None if the expert does not win. An episode whose environment fails at every
    attempt counts as not won.

    Args:
        play: plays the policy that training starts from, at most `num_tasks` groups of `group_size`.
        make_expert_env: makes the training split with its expert, in groups of one; closed here.
        max_retries: how often an expert's episode is played again if its environment fails.
        max_failed: the largest share of groups that may be lost to failures.

    Raises:
        EpisodesFailedError: more groups were lost.
        ValueError: an unknown measure, or an environment without an expert.
    """
    measure = sampler.curriculum.measure
    if measure == "win_rate":
        return _win_rates(sampler, play, num_tasks, group_size, max_failed)
    if measure == "expert_length":
        env = make_expert_env()
        try:
            return expert_lengths(sampler, env, max_retries, max_failed)
        finally:
            env.close()
    raise ValueError(unknown_name(f"measure of {sampler.described}", str(measure), MEASURES))


def _win_rates(sampler: Sampler, play: Play, num_tasks: int, group_size: int, max_failed: float) -> TaskMeasures:
    num_episodes = sampler.curriculum.episodes_before
    # A task needs several groups if one has too few episodes; surplus episodes of the last group do not count.
    tasks = [task_id for task_id in sampler.task_ids for _ in range(0, num_episodes, group_size)]
    won: dict[str, list[bool]] = {task_id: [] for task_id in sampler.task_ids}
    failures: list[FailedEpisode] = []
    steps = episodes = tokens = lost = 0
    for first in range(0, len(tasks), num_tasks):
        batch = tasks[first : first + num_tasks]
        rollout = play(batch, [(RandomStream.MEASURE, sampler.seed, first + group) for group in range(len(batch))])
        steps, episodes = steps + rollout.played_steps, episodes + rollout.played_episodes
        tokens += rollout.played_tokens
        failures += rollout.failures
        lost += len(batch) - len(rollout.episodes) // group_size
        for episode in rollout.episodes:
            won[episode.task_id].append(episode.won)
    check_failures(failures, lost, len(tasks), max_failed, "task groups to measure")
    return TaskMeasures(
        {task_id: sum(wins[:num_episodes]) / num_episodes for task_id, wins in won.items()}, steps, episodes, tokens
    )


def expert_lengths(sampler: Sampler, env: ContextWrapper, max_retries: int, max_failed: float) -> TaskMeasures:
    """Return the number of steps of the environment's expert in every task; `measure_tasks` has the arguments."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    lengths: dict[str, float | None] = dict.fromkeys(sampler.task_ids)
    failures: list[FailedEpisode] = []
    finished = 0
    for first in range(0, len(sampler.task_ids), vector.num_tasks):
        batch = list(sampler.task_ids[first : first + vector.num_tasks])
        seeds = [(RandomStream.MEASURE, sampler.seed, first + group) for group in range(len(batch))]
        rollout = collect(env, ExpertPolicy(), Sampling(), task_ids=batch, seeds=seeds, max_retries=max_retries)
        failures += rollout.failures
        finished += len(rollout.episodes)
        lengths |= {episode.task_id: episode.steps if episode.won else None for episode in rollout.episodes}
    check_failures(failures, len(lengths) - finished, len(lengths), max_failed, "expert's episodes to measure")
    return TaskMeasures(lengths, 0, 0)
