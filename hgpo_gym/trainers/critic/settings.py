"""The settings of a critic."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from hgpo_gym.section import SettingsSection


class CriticSettings(SettingsSection):
    """See `configs/config.yaml`."""

    learning_rate: NonNegativeFloat
    epochs: NonNegativeInt
    mini_batch_size: PositiveInt
    hidden_size: Annotated[int, Field(ge=0, le=65_536)]
    clip: PositiveFloat | None
    max_grad_norm: PositiveFloat
