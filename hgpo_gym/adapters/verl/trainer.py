"""verl's trainers with credit to steps: `trainer.v1.trainer_mode=steps_sync`, `steps_colocate_async` or
`steps_separate_async`.

An agent loop puts the steps of its output in `AgentLoopOutput.extra_fields["steps"]`. verl stores them with the row,
but does not fetch them for advantages; these trainers do. With `data.hgpo_gym` they also log metrics of episodes, check
validations, and fix the number of optimiser steps. Written for verl 0.9.1.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import transfer_queue
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from hgpo_gym.adapters.verl.advantages import register_estimators
from hgpo_gym.adapters.verl.launch import STOP_FILE, StoppedError
from hgpo_gym.adapters.verl.limits import COLUMN_OF
from hgpo_gym.adapters.verl.loop_settings import LoopSettings
from hgpo_gym.adapters.verl.metrics import episode_metrics, outcomes_of, validation_metrics
from hgpo_gym.adapters.verl.objective_column import ResponseValues, objective_column
from hgpo_gym.adapters.verl.record import (
    Row,
    RunRecord,
    means_of_steps,
    rows_of_output,
    with_shaping,
    with_similarity,
)
from hgpo_gym.adapters.verl.steps import row_steps
from hgpo_gym.randomness import RandomStream
from hgpo_gym.registry import Choice


def _parts(key: str) -> tuple[str, int, int]:
    """Return the parts of a row's key: the uid of its task group, the session and the output."""
    uid, session, output = key.rsplit("_", 2)
    return uid, int(session), int(output)


def keys_in_order(batch: Any) -> list[str]:
    """Return the keys of a batch without its padding, episode after episode."""
    real = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    return sorted(real, key=_parts)


def _step_means(field: str, keys: list[str], partition: str, alone: Sequence[bool]) -> list[list[float]] | None:
    """Return the means of a field of tokens over each response of each row; None without the field. `alone`: see
    `means_of_steps`."""
    data = transfer_queue.kv_batch_get(keys=keys, partition_id=partition, select_fields=[field, "response_mask"])
    if field not in data:
        return None
    columns = zip(data[field].unbind(), data["response_mask"].unbind(), alone, strict=True)
    return [means_of_steps(values, mask, alone=one) for values, mask, one in columns]


class StepsTrainer(PPOTrainer):
    """A trainer of verl for the estimators of `advantages`, to be mixed into one of its classes.

    Attributes:
        mode: verl's name of that class, by which it decides how to sample.
    """

    mode: ClassVar[str]
    loop_settings: LoopSettings | None = None
    _mini_batches: int | None = None
    _record: RunRecord | None = None
    _outcomes: Sequence[Mapping[str, Any]] = ()

    def __init__(self, config: DictConfig):
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode
        self.loop_settings = LoopSettings.of_data(config.data) if config.data.get("hgpo_gym") else None
        register_estimators()  # those of plugins too
        super().__init__(config)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        # verl tells neither a dataset nor an agent loop that a row is for validation.
        self.val_dataset.validates = True

    def on_step_begin(self) -> None:
        super().on_step_begin()
        if (Path(self.config.trainer.default_local_dir) / STOP_FILE).exists():
            self.global_steps -= 1  # the last finished step, which verl has counted on already
            self._save_checkpoint()
            raise StoppedError(f"Stopped after step {self.global_steps}, which a checkpoint holds.")

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        data = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        fields = data.pop("extra_fields").tolist()
        steps = self._prepared([extra.get("steps", []) for extra in fields], batch)
        if (entropies := self._entropies(batch, steps)) is not None:
            steps = [
                # Padding has steps and no token.
                [{**step, "entropy": entropy} for step, entropy in zip(of_row, of_steps, strict=False)]
                for of_row, of_steps in zip(steps, entropies, strict=True)
            ]
        real = [extra for extra, tag in zip(fields, batch.tags, strict=True) if not tag.get("is_padding")]
        metrics.update(episode_metrics(real))
        with row_steps(steps):
            batch = super()._compute_advantage(batch, metrics)
        return self._with_objective_column(batch)

    def _with_objective_column(self, batch: Any) -> Any:
        """Store the column that the objective needs where verl passes it to the policy loss, and return the batch that
        names it. The ratio is then to the engine's log-probabilities, as in this package; `hispo` has its own."""
        loss = OmegaConf.select(self.config, "actor_rollout_ref.actor.policy_loss") or {}
        name = loss.get("objective") or loss.get("loss_mode", "").removeprefix("hgpo_gym.")
        if (column := COLUMN_OF.get(name)) is None:
            return batch
        fields = ["advantages", "rollout_log_probs", "old_log_probs", "entropy"]
        data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        responses = [
            ResponseValues(*(tensor.float().numpy() for tensor in of_row))
            for of_row in zip(*(data[field].unbind() for field in fields), strict=True)
        ]
        options: Any = OmegaConf.to_container(OmegaConf.create(loss.get("options") or {}), resolve=True)
        seed = (RandomStream.OBJECTIVE, self.config.data.get("seed") or 0, self.global_steps - 1)
        keep = self.config.actor_rollout_ref.actor.use_kl_loss
        columns = objective_column(Choice(name, options), column, responses, seed, keep=keep)
        nested = torch.nested.as_nested_tensor(
            [torch.tensor(values, device="cpu") for values in columns], layout=torch.jagged
        )
        stored = {"rollout_is_weights": nested}
        if column != "behaviour":
            stored["old_log_probs"] = data["rollout_log_probs"]
        # The workers read the fields that the returned batch names.
        return transfer_queue.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(stored, batch_size=len(batch))
        )

    def _prepared(self, steps: list[Any], batch: Any) -> list[Any]:
        """Return the steps of each row with the keys of similar observations merged, and the shaping's rewards."""
        settings = self.loop_settings
        if settings is None or (settings.shaping.name == "none" and settings.memory.similarity is None):
            return steps
        keys = keys_in_order(batch)
        rows = self._rows(keys, batch.partition_id)
        of_rows = [row.fields["steps"] for row in rows]
        if settings.shaping.name != "none":
            of_rows = with_shaping(rows, settings.shaping, self.tokenizer.decode)
        prepared, given = (step for of_row in of_rows for step in of_row), dict(zip(batch.keys, steps, strict=True))
        of_key = {key: list(islice(prepared, len(given[key]))) for key in keys}
        return [of_key.get(key, of_row) for key, of_row in given.items()]

    def _entropies(self, batch: Any, steps: Sequence[Any]) -> list[list[float]] | None:
        """Return the mean entropy of each response of each row, where verl has computed it; None otherwise."""
        correction = self.config.algorithm.get("rollout_correction")
        if correction and correction.get("bypass_mode"):
            return None
        return _step_means("entropy", batch.keys, batch.partition_id, [len(of_row) == 1 for of_row in steps])

    def _balance_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self._mini_batches = self._count_mini_batches(self._count_responses(batch), len(batch))
        return super()._balance_batch(batch, *args, **kwargs)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        if self._mini_batches is None:
            return super()._get_required_batch_multiple(dp_size)
        return dp_size * self._mini_batches

    def _count_responses(self, batch: Any) -> int:
        if self.loop_settings is None or self.loop_settings.rows == "step":
            return len(batch)
        data = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        return sum(len(fields["steps"]) for fields in data.pop("extra_fields").tolist())

    def _count_mini_batches(self, responses: int, rows: int) -> int | None:
        """Return the number of optimiser steps; None leaves it to verl, whose mini-batches have a fixed number of rows,
        so that longer episodes make more optimiser steps, and which fills the last one up with padding."""
        if self.loop_settings is None or self.use_critic:
            return None
        if self.loop_settings.mini_batch_size is not None:
            return min(max(1, -(-responses // self.loop_settings.mini_batch_size)), rows)
        groups = self.config.data.train_batch_size // self.parameter_sync_step
        return max(1, groups // self.config.actor_rollout_ref.actor.ppo_mini_batch_size)

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        if self._mini_batches is None:
            return super()._update_actor(batch, metrics)
        # verl's mini-batch has ppo_mini_batch_size * rollout.n rows; there is no other way to give it a number of rows.
        rows, actor = len(batch) // self._mini_batches, self.config.actor_rollout_ref.actor
        metrics["training/optimizer_steps"] = self._mini_batches * actor.ppo_epochs
        with self._changed({"actor.ppo_mini_batch_size": rows, "rollout.n": 1}):
            return super()._update_actor(batch, metrics)

    @contextmanager
    def _changed(self, values: Mapping[str, int]) -> Iterator[None]:
        section = self.config.actor_rollout_ref
        before = {key: OmegaConf.select(section, key) for key in values}
        try:
            for key, value in values.items():
                OmegaConf.update(section, key, value)
            yield
        finally:
            for key, value in before.items():
                OmegaConf.update(section, key, value)

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.loop_settings is not None and self.loop_settings.run_dir is not None:
            self._record = RunRecord(Path(self.loop_settings.run_dir), self.tokenizer.decode)
            self._record.resume(self.global_steps)
            due = self.global_steps % self.config.trainer.test_freq == 0
            if self.global_steps > 0 and (not due or self._record.is_evaluated(self.global_steps)):
                self.config.trainer.val_before_train = False  # it was validated before it was stopped

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        if self._record is not None:
            keys = keys_in_order(batch)
            rows = self._rows(keys, batch.partition_id)
            means = _step_means("advantages", keys, batch.partition_id, [False] * len(keys))
            self._record.iteration(global_steps, rows, np.concatenate(means or []), metrics, timing_raw)
            if global_steps >= self.total_training_steps:
                self._record.finish()

    def _rows(self, keys: list[str], partition: str) -> list[Row]:
        """Return a row for every response, in the order of keys."""
        names = ["prompts", "responses", "response_mask"]
        data = transfer_queue.kv_batch_get(keys=keys, partition_id=partition, select_fields=["extra_fields", *names])
        columns = (data.pop("extra_fields").tolist(), *(data[name].unbind() for name in names))
        rows = [
            row
            for key, fields, prompt, response, mask in zip(keys, *columns, strict=True)
            for row in rows_of_output(_parts(key)[0], fields, prompt.tolist(), response.tolist(), mask)
        ]
        return rows if self.loop_settings is None else with_similarity(rows, self.loop_settings.memory)

    def _validate(self) -> dict[str, float]:
        began = time.perf_counter()
        metrics = super()._validate()
        if self._record is not None:
            # A run has one evaluation after an iteration: that of the first source.
            source = self.val_dataset.sources[0]
            of_source = [outcome for outcome in self._outcomes if outcome["source"] == source.label]
            self._record.evaluation(self.global_steps, source.split or "", of_source, time.perf_counter() - began)
        return metrics

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list],
        sample_turns: list[int],
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, sample_turns, expected_acc_counts
        )
        if self.loop_settings is None:
            return metrics
        expected: dict[str, int] = {}
        for (source, _), count in (expected_acc_counts or {}).items():
            expected[source] = expected.get(source, 0) + count
        self._outcomes = outcomes_of(reward_extra_infos_dict)
        return metrics | validation_metrics(self._outcomes, expected, self.loop_settings.max_failed)


@register_trainer("steps_sync")
class StepsSync(StepsTrainer, PPOTrainerSync):
    """`sync`: rollouts and updates take turns."""

    mode = "sync"


@register_trainer("steps_colocate_async")
class StepsColocateAsync(StepsTrainer, PPOTrainerColocateAsync):
    """`colocate_async`: unfinished episodes go on with the next weights."""

    mode = "colocate_async"


@register_trainer("steps_separate_async")
class StepsSeparateAsync(StepsTrainer, PPOTrainerSeparateAsync):
    """`separate_async`: GPUs of their own generate. With `parameter_sync_step` above 1, advantages are computed in each
    mini-batch, which `launch.check_separate` refuses for estimators with statistics over all task groups.
    """

    mode = "separate_async"
