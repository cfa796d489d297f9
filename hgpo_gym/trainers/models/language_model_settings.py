"""The settings of a language model."""

from typing import Literal, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from hgpo_gym.policies.lora import LoraSettings
from hgpo_gym.section import SettingsSection
from hgpo_gym.trainers.models.sizes import Threads, check_fits


class LanguageModelSettings(SettingsSection):
    """See `tiny.yaml`, `pretrained.yaml` and `shared/language_model.yaml` in `configs/model`. The shape is that of a
    model made from scratch, when `path` is null."""

    path: str | None
    seed: NonNegativeInt
    device: str
    threads: Threads | None
    dtype: Literal["float32", "bfloat16"]
    quantization: Literal["nf4"] | None
    lora: LoraSettings
    hidden_size: PositiveInt | None = None
    layers: PositiveInt | None = None
    heads: PositiveInt | None = None
    vocabulary_size: PositiveInt | None = None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.path is None and self.hidden_size and self.layers and self.vocabulary_size:
            shape = f"model.hidden_size={self.hidden_size} with model.layers={self.layers} and "
            shape += f"model.vocabulary_size={self.vocabulary_size}"
            check_fits((16 * self.layers * self.hidden_size + self.vocabulary_size) * self.hidden_size, shape)
        return self
