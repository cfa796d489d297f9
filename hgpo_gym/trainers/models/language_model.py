"""`model=tiny` and `model=pretrained`: causal language models of transformers, with or without an adapter."""

from pathlib import Path
from typing import TYPE_CHECKING

from hgpo_gym.trainers.models.initial_weights import initial_weights
from hgpo_gym.trainers.models.language_model_settings import LanguageModelSettings
from hgpo_gym.trainers.policies.engines import make_policy
from hgpo_gym.trainers.policies.huggingface import load_model
from hgpo_gym.trainers.policies.lora import CONFIG as ADAPTER_CONFIG
from hgpo_gym.trainers.policies.lora import add_adapter, base_of, load_adapter

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.policies.base import TrainablePolicy
    from hgpo_gym.trainers.settings import RunSettings


class LanguageModel(LanguageModelSettings):
    """What makes policies of these settings."""

    @property
    def imitates(self) -> bool:
        """Only a model that is made from scratch; one that was given is used as it is."""
        return self.path is None

    def check(self, run: "RunSettings", processes: int) -> None:  # noqa: ARG002 - Model
        if processes > 1 and self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"model.device={self.device}: {processes} processes take a GPU each; set auto or cuda.")
        if self.lora.rank is None and self.quantization is not None:
            raise ValueError(f"model.quantization={self.quantization}: such weights do not train. Set model.lora.rank.")
        if self.path is None and None in (self.hidden_size, self.layers, self.heads, self.vocabulary_size):
            raise ValueError("model.path=null: name a model, or set model=tiny, which makes one.")
        if self.hidden_size is not None and self.heads is not None and self.hidden_size % self.heads:
            raise ValueError(f"model.hidden_size={self.hidden_size} must be a multiple of model.heads={self.heads}.")

    def initial(self, run: "RunSettings", progress: "Progress") -> "TrainablePolicy":
        model, tokenizer = self._load(initial_weights(run, self, progress))
        return make_policy(run.engine, add_adapter(model, self.lora, self.seed) if self.lora.rank else model, tokenizer)

    def load(self, run: "RunSettings", folder: Path) -> "TrainablePolicy":
        if not (folder / ADAPTER_CONFIG).exists():
            return make_policy(run.engine, *self._load(str(folder)))
        model, tokenizer = self._load(base_of(folder))
        return make_policy(run.engine, load_adapter(model, folder), tokenizer)

    def _load(self, path: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        return load_model(path, device=self.device, dtype=self.dtype, quantization=self.quantization)
