"""The tasks of environments as verl's dataset: `data.custom_cls.path=pkg://hgpo_gym.adapters.verl.dataset`."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch.utils.data import Dataset

from hgpo_gym.adapters.verl.loop_settings import LoopSettings, Source
from hgpo_gym.adapters.verl.task_order import find_sampler, tasks_of_training
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.rollouts.samplers.base import spread, tasks_in_order


class TaskDataset(Dataset):
    """Rows with a task each.

    Sources with a weight (`alfworld:train*1`) are for training: the rows are the tasks of all iterations in a row, in
    the order in which this package's own trainer plays them at the same seed and sampler. So verl must not shuffle
    them (`data.shuffle=false`). Sources without a weight are for validation: every task once, in its split's order.

    Args:
        data_files: the sources, see `Source`; all of them with a weight or none.
        config: verl's `data`, with `hgpo_gym`.
        max_samples: the most rows, the first of them; -1 for all.

    Attributes:
        sources: of the tasks.
        validates: the rows are for validation. verl does not pass this on; the trainers of `trainer` set it.

    Raises:
        ValueError: an unknown environment, option or split, or wrong sources.
    """

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any = None,  # noqa: ARG002 - verl passes it
        config: DictConfig | None = None,
        processor: Any = None,  # noqa: ARG002 - verl passes it
        max_samples: int = -1,
    ):
        assert config is not None
        self._settings = LoopSettings.of_data(config)
        texts = [data_files] if isinstance(data_files, str) else list(data_files)
        self.sources = [Source.parse(text, self._settings) for text in texts]
        self.validates = False
        weighted = [source.weight is not None for source in self.sources]
        if any(weighted) != all(weighted):
            raise ValueError(f"data files {texts}: give a weight (*1) to all of them, or to none.")
        tasks = [_task_ids(source, self._settings) for source in self.sources]
        if any(weighted):
            self._groups = config.train_batch_size
            if self._settings.iterations is None:
                raise ValueError("data.hgpo_gym.iterations is not set, which sources with a weight need.")
            if config.get("shuffle", True):
                raise ValueError(
                    "data.shuffle=true: sources with a weight have their own order; set data.shuffle=false."
                )
            order = _by_sampler if len(self.sources) == 1 else _in_order
            self._rows = list(order(self.sources, [list(ids.values()) for ids in tasks], self._settings, self._groups))
        else:
            self._groups = 0
            self._rows = [
                (source, task, n) for source, ids in zip(self.sources, tasks, strict=True) for n, task in ids.items()
            ]
        if max_samples >= 0:
            self._rows = self._rows[:max_samples]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        source, task_id, number = self._rows[index]
        iteration, group = divmod(index, self._groups) if self._groups else (-1, number)
        return {
            "raw_prompt": [{"role": "user", "content": task_id}],  # verl counts rows by it; the loop makes its prompts
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8, device="cpu"),  # verl needs a tensor in every batch
            "data_source": source.label,
            "env": source.env,
            "split": source.split or "",
            "task_id": task_id,
            "validates": self.validates,
            "iteration": iteration,
            "group": group,
            "index": index,
        }


def _task_ids(source: Source, settings: LoopSettings) -> dict[int, str]:
    """Return the tasks of a source by their number in its split."""
    options = source.options(settings)
    env = make(options.pop("id"), **options)
    try:
        ids = env.unwrapped.task_ids  # type: ignore[attr-defined]
        most = settings.validation_tasks if source.weight is None else settings.train_tasks
        return {number: ids[number] for number in spread(len(ids), most)}
    finally:
        env.close()


def _by_sampler(
    sources: Sequence[Source], tasks: Sequence[Sequence[str]], settings: LoopSettings, groups: int
) -> Iterator[tuple[Source, str, int]]:
    """Yield the tasks of all iterations from the only source."""
    (source,), (task_ids,) = sources, tasks

    def make_expert_env() -> ContextWrapper:
        options = source.options(settings)
        vector = TextVectorEnv(
            options.pop("id"), min(groups, len(task_ids)), 1, contain_failures=True, expert=True, **options
        )
        return ContextWrapper(vector, settings.prompt, memory=settings.memory.make)

    sampler = find_sampler(settings.sampler, task_ids, settings.seed)
    order = tasks_of_training(sampler, make_expert_env, groups, settings.iterations or 0, settings.max_retries)
    for position, task_id in enumerate(order):
        yield source, task_id, position


def _in_order(
    sources: Sequence[Source], tasks: Sequence[Sequence[str]], settings: LoopSettings, groups: int
) -> Iterator[tuple[Source, str, int]]:
    """Yield the tasks of all iterations. At each position comes the source that is furthest behind its share."""
    if settings.sampler.name != "in_order":
        raise ValueError(
            f"data.hgpo_gym.sampler={settings.sampler.name} chooses from one source, and data.train_files has "
            f"{len(sources)}: set sampler=in_order."
        )
    weights = [source.weight or 0.0 for source in sources]
    drawn = [0] * len(sources)
    for position in range((settings.iterations or 0) * groups):
        behind = [weight / sum(weights) * (position + 1) - done for weight, done in zip(weights, drawn, strict=True)]
        index = behind.index(max(behind))
        (task_id,) = tasks_in_order(tasks[index], settings.seed, drawn[index], 1)
        drawn[index] += 1
        yield sources[index], task_id, position
