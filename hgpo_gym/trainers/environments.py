"""The environments of a run: the configured one, vectorised, with memory and prompts."""

from collections.abc import Sequence
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
from hgpo_gym.trainers.columns import recorded_columns
from hgpo_gym.trainers.settings import RunSettings


def make_env(
    run: RunSettings,
    *,
    num_tasks: int,
    group_size: int,
    contain_failures: bool = True,
    prompt: PromptTemplate | None = None,
    **changes: Any,
) -> ContextWrapper:
    """As many groups of the run's environment, with `prompt` or the run's; `changes` replace options of it.

    They contain failures unless the run has `rollout.max_retries=null`, or `contain_failures` is False.
    """
    options = {**run.env.options, **changes}
    vector = TextVectorEnv(
        run.env.id,
        num_tasks=num_tasks,
        group_size=group_size,
        workers=run.rollout.workers,
        worker_timeout=run.rollout.worker_timeout,
        contain_failures=contain_failures and run.rollout.max_retries is not None,
        **options,
    )
    return ContextWrapper(vector, prompt or run.prompt, **run.memory.model_dump())


def make_training_env(run: RunSettings, processes: Processes = ALONE) -> ContextWrapper:
    """The training split: this process' share of `rollout.num_tasks` groups of `rollout.group_size`."""
    groups = len(processes.share(range(run.rollout.num_tasks)))
    return make_env(run, num_tasks=groups, group_size=run.rollout.group_size)


def training_tasks(run: RunSettings, env: ContextWrapper) -> Sequence[str]:
    """The tasks of its split that are trained on: all, or `rollout.train_tasks` of them, the same all through."""
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    num_tasks, task_ids = run.rollout.train_tasks, vector.task_ids
    return task_ids if num_tasks is None else [task_ids[index] for index in spread(len(task_ids), num_tasks)]


class Tasks(NamedTuple):
    """Which tasks an environment or vector has. Settings do not tell: of a list of splits it is the first that is
    there."""

    split: str
    ids: tuple[str, ...]

    @classmethod
    def of(cls, env: Any) -> "Tasks":
        return cls(env.unwrapped.split, tuple(env.unwrapped.task_ids))

    def told(self) -> dict[str, Any]:
        """As JSON: split, number, and a key of all ids."""
        return {"split": self.split, "tasks": len(self.ids), "key": content_key(list(self.ids))}

    def overlap(self, training: "Tasks") -> str:
        """A line that says so, where a split that is evaluated has tasks of another one that is trained on. Not of
        `all`, nor of splits that are joined, whose names say it."""
        shared = len(set(self.ids) & set(training.ids))
        if not shared or self.split in (training.split, "all") or "+" in self.split:
            return ""
        return (
            f"Of the {len(self.ids)} tasks of evaluation.split={self.split}, {shared} are trained on too: they are in "
            f"env.split={training.split}. Set env.split to others."
        )


def try_environment(run: RunSettings) -> Tasks:
    """Make one environment of the training split, so that options that cannot be show before anything is written, and
    columns that it does not have."""
    env = make(run.env.id, **run.env.options)
    try:
        columns = {name: by for name, by in recorded_columns(run).items() if name != ENTROPY}
        if columns:
            _, info = env.reset(seed=run.seed)
            *_, info = env.step(next(iter(info["admissible_actions"]), ""))
            for name, by in columns.items():
                number_of_step(info, name, by)
        return Tasks.of(env)
    finally:
        env.close()


def make_evaluation_env(run: RunSettings, processes: Processes = ALONE, **changes: Any) -> ContextWrapper:
    """The evaluation split, one episode a task, this process' share of `evaluation.num_envs` side by side."""
    if run.evaluation.split is not None:
        changes["split"] = run.evaluation.split
    share = len(processes.share(range(run.evaluation.num_envs)))
    return make_env(run, num_tasks=max(1, share), group_size=1, **changes)
