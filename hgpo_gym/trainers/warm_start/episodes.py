"""The episodes that a warm start imitates. A scripted policy plays them once, and the cache keeps them."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from hgpo_gym.digests import cached_folder
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.files import cache_dir, content_key, source_digest
from hgpo_gym.memory import prompts
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.policies import scripted
from hgpo_gym.policies.base import Policy, Sampling
from hgpo_gym.policies.scripted import ExpertPolicy, RandomPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts import collect as rollout
from hgpo_gym.rollouts import player, playing, transcripts
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.failures import check_failures, last_error
from hgpo_gym.rollouts.rollout import FailedEpisode
from hgpo_gym.rollouts.samplers import tasks_in_order
from hgpo_gym.rollouts.transcripts import Transcript
from hgpo_gym.trainers.environments import make_env
from hgpo_gym.trainers.settings import MemorySettings

if TYPE_CHECKING:
    from hgpo_gym.trainers.settings import ModelSections

SIDE_BY_SIDE = 32
BARE_PROMPT = "bare"
"""The prompt for scripted policies. It asks for the action alone, so every run prompt gets the same episodes."""
NO_MEMORY = MemorySettings(name="none", history_length=0, key="observation")
_FILE = "episodes.jsonl"


IMITATED_ALONE = (
    "team={}: what is imitated are the prompts of an agent by itself; those of the roles are new to the model."
)


def episodes_to_imitate(run: "ModelSections", seed: int, progress: Progress) -> tuple[list[Transcript], str]:
    """Return the episodes and their cache key. The key covers all that they depend on, including the environment's
    texts.

    With `warmstart.source=none` these are random episodes, from which the tokenizer learns the environment's words.
    Episodes whose environment fails at every attempt are left out. A line says so whenever the episodes are read.

    Args:
        run: the settings with the environment and the warm start.
        seed: decides the tasks and all random numbers.
        progress: reports slow steps.

    Raises:
        EpisodesFailedError: the share of episodes left out would be above `rollout.max_failed`.
    """
    settings, expert = run.warmstart, run.warmstart.source == "expert"
    rollout_settings = run.environments.rollout
    if run.team.name != "solo" and settings.source != "none":
        progress.line(IMITATED_ALONE.format(run.team.name))
    num_tasks = min(settings.episodes, SIDE_BY_SIDE)
    options = {"expert": True} if expert else {}
    # Without memory: the role that writes notes would respond too, and its responses would be taken for steps.
    environments = run.environments._replace(memory=NO_MEMORY)
    env = make_env(environments, num_tasks=num_tasks, group_size=1, prompt=PromptTemplate.named(BARE_PROMPT), **options)
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    behaviour = ["expert", settings.random_actions] if expert else ["random"]
    # The code that plays is part of the key, so a change of it makes new episodes.
    made_by = source_digest(transcripts, rollout, playing, player, scripted, prompts)
    key = content_key(
        [made_by, NO_MEMORY.name, vector.texts_key, list(vector.task_ids), behaviour, settings.episodes, seed]
    )

    def write_episodes(folder: Path) -> None:
        policy: Policy = ExpertPolicy(settings.random_actions) if expert else RandomPolicy()
        schedule = tasks_in_order(vector.task_ids, seed, 0, settings.episodes)
        collected: list[Transcript] = []
        failures: list[FailedEpisode] = []
        with progress.stage(
            f"Collecting {settings.episodes} {'expert' if expert else 'random'} episodes"
        ) as report_progress:
            for first in range(0, settings.episodes, num_tasks):
                tasks = schedule[first : first + num_tasks]
                seeds = [(RandomStream.WARM_START, seed, first + index) for index in range(len(tasks))]
                new_rollout = collect(
                    env,
                    policy,
                    Sampling(),
                    task_ids=tasks,
                    seeds=seeds,
                    max_retries=rollout_settings.max_retries or 0,
                )
                collected += transcripts.from_rollout(new_rollout)
                failures += new_rollout.failures
                report_progress(
                    first + len(tasks), settings.episodes, f"{sum(episode.won for episode in collected)} won"
                )
        num_missing = settings.episodes - len(collected)
        check_failures(failures, num_missing, settings.episodes, rollout_settings.max_failed, "episodes to imitate")
        if failures:
            progress.line(
                f"Environments failed in {len(failures)} attempts at an episode to imitate. {last_error(failures)}"
            )
        transcripts.save(collected, folder / _FILE)

    with closing(env):
        folder = cached_folder(cache_dir() / "transcripts" / key, write_episodes)
    episodes = transcripts.load(folder / _FILE)
    if num_left_out := settings.episodes - len(episodes):
        progress.line(
            f"{num_left_out} of {settings.episodes} episodes to imitate are left out: their environments failed when "
            "they were played. To play them again, name another cache (HGPO_GYM_CACHE)."
        )
    return episodes, key


def worth_imitating(episodes: list[Transcript], source: str) -> list[Transcript]:
    """Return the won episodes of an expert, or all random episodes, which teach the form of a response. Raises
    ValueError if there are none."""
    selected = [episode for episode in episodes if episode.won or source == "random"]
    if not selected:
        raise ValueError(
            f"warmstart.source={source}: none of {len(episodes)} episodes was won, and there is nothing to imitate. "
            "Raise warmstart.episodes or env.max_episode_steps, or choose warmstart.source=random."
        )
    return selected
