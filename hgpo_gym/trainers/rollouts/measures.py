"""What a sampler has to know of every task before training: played once, kept by the run."""

from collections.abc import Callable
from typing import NamedTuple

from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.randomness import Stream
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.policies.base import Sampling
from hgpo_gym.trainers.policies.scripted import ExpertPolicy
from hgpo_gym.trainers.rollouts.collect import collect
from hgpo_gym.trainers.rollouts.rounds import Play
from hgpo_gym.trainers.rollouts.samplers.base import Sampler

MEASURES = ("win_rate", "expert_length")


class Measured(NamedTuple):
    """A number for every task, and what the policy played for it.

    Attributes:
        values: by task id, as JSON; None where there is none.
        steps, episodes: by the policy; the expert's do not count.
    """

    values: dict[str, float | None]
    steps: int
    episodes: int


def measure_tasks(
    sampler: Sampler, play: Play, make_expert_env: Callable[[], ContextWrapper], *, num_tasks: int, group_size: int
) -> Measured:
    """What `sampler.measure` asks for; to be given to `sampler.begin`.

    `win_rate` is the share of `sampler.episodes_before` episodes that the policy wins, `expert_length` the steps that
    the environment's expert takes, None where it does not win.

    Args:
        play: by the policy that training starts from, `num_tasks` groups of `group_size` at most.
        make_expert_env: the training split with its expert, in groups of one; closed here.

    Raises:
        ValueError: an unknown measure, or an environment without an expert.
    """
    if sampler.measure == "win_rate":
        return _win_rates(sampler, play, num_tasks, group_size)
    if sampler.measure == "expert_length":
        env = make_expert_env()
        try:
            return _expert_lengths(sampler, env)
        finally:
            env.close()
    raise ValueError(unknown_name(f"measure of {sampler.described}", str(sampler.measure), MEASURES))


def _win_rates(sampler: Sampler, play: Play, num_tasks: int, group_size: int) -> Measured:
    wanted = sampler.episodes_before
    # A task takes several groups where one has too few episodes; of the last one not all count.
    tasks = [task_id for task_id in sampler.task_ids for _ in range(0, wanted, group_size)]
    won: dict[str, list[bool]] = {task_id: [] for task_id in sampler.task_ids}
    steps = episodes = 0
    for first in range(0, len(tasks), num_tasks):
        part = tasks[first : first + num_tasks]
        rollout = play(part, [(Stream.MEASURE, sampler.seed, first + group) for group in range(len(part))])
        steps, episodes = steps + rollout.played_steps, episodes + rollout.played_episodes
        for episode in rollout.episodes:
            won[episode.task_id].append(episode.won)
    return Measured({task_id: sum(wins[:wanted]) / wanted for task_id, wins in won.items()}, steps, episodes)


def _expert_lengths(sampler: Sampler, env: ContextWrapper) -> Measured:
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    lengths: dict[str, float | None] = {}
    for first in range(0, len(sampler.task_ids), vector.num_tasks):
        part = list(sampler.task_ids[first : first + vector.num_tasks])
        seeds = [(Stream.MEASURE, sampler.seed, first + group) for group in range(len(part))]
        rollout = collect(env, ExpertPolicy(), Sampling(), task_ids=part, seeds=seeds)
        lengths |= {episode.task_id: episode.steps if episode.won else None for episode in rollout.episodes}
    return Measured(lengths, 0, 0)
