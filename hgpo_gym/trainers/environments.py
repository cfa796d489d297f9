"""The environments of a run: the configured one, vectorised, with memory and prompts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hgpo_gym.envs.registration import make
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.files import content_key
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.processes import ALONE, Processes
from hgpo_gym.rollouts.player import number_of_step
from hgpo_gym.rollouts.recording import ENTROPY
from hgpo_gym.rollouts.samplers import spread
from hgpo_gym.trainers.settings import EnvironmentSections, EnvSettings, EvaluationSettings


def make_env(
    sections: EnvironmentSections,
    *,
    num_tasks: int,
    group_size: int,
    contain_failures: bool = True,
    prompt: PromptTemplate | None = None,
    **changes: Any,
) -> ContextWrapper:
    """Make `num_tasks` groups of the run's environment, with `prompt` or the run's prompt. `changes` replace options
    of the environment.

    The groups contain failures unless `rollout.max_retries=null` or `contain_failures` is False.
    """
    env, rollout = sections.env, sections.rollout
    options = {**env.options, **changes}
    vector = TextVectorEnv(
        env.id,
        num_tasks=num_tasks,
        group_size=group_size,
        workers=rollout.workers,
        worker_timeout=rollout.worker_timeout,
        contain_failures=contain_failures and rollout.max_retries is not None,
        **options,
    )
    memory = sections.memory
    return ContextWrapper(vector, prompt or sections.prompt, memory=memory.make, similarity=memory.similarity)


def make_training_env(sections: EnvironmentSections, processes: Processes = ALONE) -> ContextWrapper:
    """Make the environments of the training split: this process's share of `rollout.num_tasks` groups, each of
    `rollout.group_size`."""
    groups = len(processes.share(range(sections.rollout.num_tasks)))
    return make_env(sections, num_tasks=groups, group_size=sections.rollout.group_size)


def training_tasks(train_tasks: int | None, env: ContextWrapper) -> Sequence[str]:
    """Return the tasks to train on: all tasks of the split, or `train_tasks` of them. The choice stays the same for
    the whole run."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    task_ids = vector.task_ids
    return [task_ids[index] for index in spread(len(task_ids), train_tasks)] if train_tasks else task_ids


class Tasks(NamedTuple):
    """The split and the task ids of an environment or vector. Settings alone do not determine the split: from a list
    of splits the environment takes the first that exists."""

    split: str
    ids: tuple[str, ...]

    @classmethod
    def of(cls, env: Any) -> "Tasks":
        return cls(env.unwrapped.split, tuple(env.unwrapped.task_ids))

    def describe(self) -> dict[str, Any]:
        """Return the tasks as JSON: the split, their number, and a key of all ids."""
        return {"split": self.split, "tasks": len(self.ids), "key": content_key(list(self.ids))}

    def overlap(self, training: "Tasks") -> str:
        """Return a warning if an evaluated split shares tasks with the training split, else an empty string. Splits
        named `all` and joined splits give no warning, because their names already say so."""
        shared = len(set(self.ids) & set(training.ids))
        if not shared or self.split in (training.split, "all") or "+" in self.split:
            return ""
        return (
            f"Of the {len(self.ids)} tasks of evaluation.split={self.split}, {shared} are trained on too: they are in "
            f"env.split={training.split}. Set env.split to others."
        )


def try_environment(settings: EnvSettings, seed: int, recorded: Mapping[str, str]) -> Tasks:
    """Make one environment of the training split and return its tasks. So wrong options and missing columns raise
    before anything is written.

    Args:
        recorded: the columns that a run records, see `recorded_columns`.
    """
    env = make(settings.id, **settings.options)
    try:
        columns = {name: by for name, by in recorded.items() if name != ENTROPY}
        # Some columns exist only after a step, so one action is played.
        if columns:
            _, info = env.reset(seed=seed)
            *_, info = env.step(next(iter(info["admissible_actions"]), ""))
            for name, by in columns.items():
                number_of_step(info, name, by)
        return Tasks.of(env)
    finally:
        env.close()


def make_evaluation_env(
    sections: EnvironmentSections, evaluation: EvaluationSettings, processes: Processes = ALONE, **changes: Any
) -> ContextWrapper:
    """Make the environments of the evaluation split, one episode per task. This process makes its share of
    `evaluation.num_envs`, which play side by side."""
    if evaluation.split is not None:
        changes["split"] = evaluation.split
    share = len(processes.share(range(evaluation.num_envs)))
    # A process without a share still needs one environment: it takes part in every evaluation.
    return make_env(sections, num_tasks=max(1, share), group_size=1, **changes)
