"""The settings of the policy update."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from hgpo_gym.registry import Choice
from hgpo_gym.section import SettingsSection, one_of
from hgpo_gym.trainers.update.aggregation import AGGREGATIONS
from hgpo_gym.trainers.update.corrections import CORRECTIONS


class TrainerSettings(SettingsSection):
    """See `configs/trainer/default.yaml`."""

    iterations: NonNegativeInt
    learning_rate: NonNegativeFloat
    warmup_steps: NonNegativeInt
    weight_decay: NonNegativeFloat
    mini_batch_size: PositiveInt
    update_epochs: PositiveInt
    clip_low: NonNegativeFloat
    clip_high: NonNegativeFloat
    kl_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    zero_advantage: Literal["drop", "mask", "keep"]
    loss_aggregation: Annotated[str | None, AfterValidator(one_of(AGGREGATIONS))]
    loss_constant: PositiveFloat
    max_grad_norm: PositiveFloat
    invalid_action_penalty: NonNegativeFloat
    max_batch_tokens: PositiveInt
    recompute_logprobs: bool
    importance_correction: Annotated[str, AfterValidator(one_of(CORRECTIONS))]
    importance_cap: PositiveFloat
    importance_options: dict[str, Any] | None
    off_policy_limit: NonNegativeFloat | None
    optimizer: Literal["adamw", "adamw_8bit"]
    precision: Literal["float32", "bfloat16"]
    gradient_checkpointing: bool

    @model_validator(mode="after")
    def _check_correction(self) -> Self:
        try:
            CORRECTIONS.check_options(*self.correction)
        except ValueError as error:
            raise ValueError(f"trainer.importance_options={self.importance_options}: {error}") from None
        return self

    @property
    def correction(self) -> Choice:
        """Return the importance correction. Its cap is `importance_cap`, if it has one."""
        capped = "cap" in CORRECTIONS.options(self.importance_correction)
        cap = {"cap": self.importance_cap} if capped else {}
        return Choice(self.importance_correction, {**cap, **(self.importance_options or {})})
