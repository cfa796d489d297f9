"""The settings of a language model."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from hgpo_gym.trainers.policies.lora import LoraSettings
from hgpo_gym.trainers.section import Section


class LanguageModelSettings(Section):
    """See `configs/model/tiny.yaml` and `pretrained.yaml`. The shape is that of a model made from scratch, where there
    is no path."""

    path: str | None
    seed: NonNegativeInt
    device: str
    threads: PositiveInt | None
    dtype: Literal["float32", "bfloat16"]
    quantization: Literal["nf4"] | None
    lora: LoraSettings
    hidden_size: PositiveInt | None = None
    layers: PositiveInt | None = None
    heads: PositiveInt | None = None
    vocabulary_size: PositiveInt | None = None
