"""`trainer.v1.trainer_mode=steps_sync`: verl's synchronous trainer with the steps of every row.

An agent loop puts the steps of its output in `AgentLoopOutput.extra_fields["steps"]` (`describe_steps`). verl stores
them with the row, but does not fetch them for advantages. This trainer does, and changes nothing else. verl loads this
module by an entry point, like `hgpo_gym.adapters.verl`.
"""

from typing import Any

import transfer_queue
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from hgpo_gym.adapters.verl import row_steps


@register_trainer("steps_sync")
class StepsTrainer(PPOTrainerSync):
    """A `PPOTrainerSync` for the estimators of `hgpo_gym.adapters.verl`."""

    def __init__(self, config: DictConfig):
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # by which verl decides how to sample
        super().__init__(config)

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        fields = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        with row_steps([extra.get("steps", []) for extra in fields.pop("extra_fields").tolist()]):
            return super()._compute_advantage(batch, metrics)
