"""What a sampler has to know of every task before training: played once, kept by the run."""

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
    """A number for every task, and what the policy played for it.

    Attributes:
        values: by task id, as JSON; None where there is none.
        steps, episodes, tokens: by the policy; the expert's do not count.
        seconds: that it took.
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
    """What `sampler.measure` asks for; to be given to `sampler.begin`.

    `win_rate` is the share of `sampler.episodes_before` episodes that the policy wins, `expert_length` the steps that
    the environment's expert takes, None where it does not win. An episode whose environment fails each time is not won.

    Args:
        play: by the policy that training starts from, `num_tasks` groups of `group_size` at most.
        make_expert_env: the training split with its expert, in groups of one; closed here.
        max_retries: how often an expert's episode is played again whose environment fails.
        max_failed: the largest share of the groups that may come to nothing by that.

    Raises:
        EpisodesFailedError: more do.
        ValueError: an unknown measure, or an environment without an expert.
    """
    if sampler.measure == "win_rate":
        return _win_rates(sampler, play, num_tasks, group_size, max_failed)
    if sampler.measure == "expert_length":
        env = make_expert_env()
        try:
            return _expert_lengths(sampler, env, max_retries, max_failed)
        finally:
            env.close()
    raise ValueError(unknown_name(f"measure of {sampler.described}", str(sampler.measure), MEASURES))


def _win_rates(sampler: Sampler, play: Play, num_tasks: int, group_size: int, max_failed: float) -> TaskMeasures:
    wanted = sampler.episodes_before
    # A task takes several groups where one has too few episodes; of the last one not all count.
    tasks = [task_id for task_id in sampler.task_ids for _ in range(0, wanted, group_size)]
    won: dict[str, list[bool]] = {task_id: [] for task_id in sampler.task_ids}
    failures: list[FailedEpisode] = []
    steps = episodes = tokens = lost = 0
    for first in range(0, len(tasks), num_tasks):
        part = tasks[first : first + num_tasks]
        rollout = play(part, [(RandomStream.MEASURE, sampler.seed, first + group) for group in range(len(part))])
        steps, episodes = steps + rollout.played_steps, episodes + rollout.played_episodes
        tokens += rollout.played_tokens
        failures += rollout.failures
        lost += len(part) - len(rollout.episodes) // group_size
        for episode in rollout.episodes:
            won[episode.task_id].append(episode.won)
    check_failures(failures, lost, len(tasks), max_failed, "task groups to measure")
    return TaskMeasures(
        {task_id: sum(wins[:wanted]) / wanted for task_id, wins in won.items()}, steps, episodes, tokens
    )


def _expert_lengths(sampler: Sampler, env: ContextWrapper, max_retries: int, max_failed: float) -> TaskMeasures:
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    lengths: dict[str, float | None] = dict.fromkeys(sampler.task_ids)
    failures: list[FailedEpisode] = []
    played = 0
    for first in range(0, len(sampler.task_ids), vector.num_tasks):
        part = list(sampler.task_ids[first : first + vector.num_tasks])
        seeds = [(RandomStream.MEASURE, sampler.seed, first + group) for group in range(len(part))]
        rollout = collect(env, ExpertPolicy(), Sampling(), task_ids=part, seeds=seeds, max_retries=max_retries)
        failures += rollout.failures
        played += len(rollout.episodes)
        lengths |= {episode.task_id: episode.steps if episode.won else None for episode in rollout.episodes}
    check_failures(failures, len(lengths) - played, len(lengths), max_failed, "expert's episodes to measure")
    return TaskMeasures(lengths, 0, 0)
