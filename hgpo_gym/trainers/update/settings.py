"""The settings of the policy update."""

from typing import Annotated, Literal

from pydantic import AfterValidator, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from hgpo_gym.section import SettingsSection, one_of
from hgpo_gym.trainers.update.aggregation import AGGREGATIONS


class TrainerSettings(SettingsSection):
    """See `configs/trainer/default.yaml`."""

    iterations: NonNegativeInt
    learning_rate: NonNegativeFloat
    warmup_steps: NonNegativeInt
    weight_decay: NonNegativeFloat
    mini_batch_episodes: PositiveInt
    mini_batch_size: PositiveInt | None
    update_epochs: PositiveInt
    rows: Literal["step", "episode"]
    kl_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    zero_advantage: Literal["drop", "mask", "keep"]
    loss_aggregation: Annotated[str | None, AfterValidator(one_of(AGGREGATIONS))]
    loss_constant: PositiveFloat | None
    max_grad_norm: PositiveFloat
    invalid_action_penalty: NonNegativeFloat
    max_batch_tokens: PositiveInt
    recompute_logprobs: bool
    off_policy_limit: NonNegativeFloat | None
    optimizer: Literal["adamw", "adamw_8bit", "muon"]
    precision: Literal["float32", "bfloat16"]
    gradient_checkpointing: bool
