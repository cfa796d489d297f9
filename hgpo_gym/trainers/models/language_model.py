"""`model=tiny` and `model=pretrained`: causal language models of transformers, with or without an adapter.

Methods import the code that needs transformers; this module does not. A table's run also imports this module, and
need not wait for transformers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hgpo_gym.memory.prompts import UNEXPLAINED
from hgpo_gym.policies.engines import engine_settings
from hgpo_gym.policies.lora import DEFAULT, adapters_in, add_adapters, base_of, load_adapters
from hgpo_gym.policies.vllm_requests import check_device
from hgpo_gym.rollouts.teams import roles_with_adapters
from hgpo_gym.trainers.models.language_model_settings import LanguageModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.policies.base import TrainablePolicy
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.settings import ModelSections

SMALLEST_RATE_OF_BFLOAT16 = 6e-5
"""The smallest learning rate that changes bfloat16 weights. Adam's step is about the learning rate. A weight of 0.02
has neighbours at a distance of 1.2e-4 in bfloat16, and a step below half of that is rounded away."""


class LanguageModel(LanguageModelSettings):
    """Language-model settings that make policies."""

    is_language_model: ClassVar[bool] = True
    writes_text: ClassVar[bool] = True
    has_states: ClassVar[bool] = True

    @property
    def imitates(self) -> bool:
        """Return True for a model made from scratch. A given model is used without imitation."""
        return self.path is None

    def check(self, run: "ModelSections", processes: int) -> None:
        if processes > 1 and self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"model.device={self.device}: {processes} processes take a GPU each; set auto or cuda.")
        if processes == 1 and run.engine.name == "vllm" and run.engine.options.get("server") is None:
            check_device(self.device)
        if self.lora.rank is None and self.quantization is not None:
            raise ValueError(f"model.quantization={self.quantization}: such weights do not train. Set model.lora.rank.")
        if run.warmstart.loss == "choices" and run.engine.options.get("constrain") == "none":
            raise ValueError(
                "warmstart.loss=choices is of admissible responses: set engine.constrain=admissible, or "
                "warmstart.loss=tokens."
            )
        if self.path is None and None in (self.hidden_size, self.layers, self.heads, self.vocabulary_size):
            raise ValueError("model.path=null: name a model, or set model=tiny, which makes one.")
        if self.hidden_size is not None and self.heads is not None and self.hidden_size % self.heads:
            raise ValueError(f"model.hidden_size={self.hidden_size} must be a multiple of model.heads={self.heads}.")
        if processes > 1:
            _check_together(run, self, processes)
        if roles := roles_with_adapters(run.team):
            self._check_adapters(roles, run.engine.name, processes)

    def _check_adapters(self, roles: Sequence[str], engine: str, processes: int) -> None:
        setting, alternative = "team.weights=adapter", "or set team.weights=shared."
        if self.lora.rank is None:
            raise ValueError(
                f"{setting}: model.lora.rank=null makes no adapter. Set a rank, 16 for example, {alternative}"
            )
        if engine != "transformers":
            raise ValueError(
                f"{setting}: engine={engine} has one set of weights. Set engine=transformers, {alternative}"
            )
        if processes > 1:
            raise ValueError(
                f"{setting} is for one process, {processes} were launched: one of them may have nothing to learn for a "
                f"role that another waits for. Launch one, {alternative}"
            )
        if names := [role for role in roles if not role.isidentifier() or role == DEFAULT]:
            raise ValueError(
                f"{setting}: no adapter can be called {names[0]!r}. Give the role another name, {alternative}"
            )

    def initial(self, run: "ModelSections", progress: "Progress") -> "TrainablePolicy":
        from hgpo_gym.trainers.models.initial_weights import initial_weights

        weights = initial_weights(run, self, progress)
        if weights == self.path:
            progress.line(f"Loading {weights}")
            if run.environments.prompt.unexplained and run.engine.options.get("constrain") == "none":
                progress.line(UNEXPLAINED)
        if self.dtype == "bfloat16" and not self.lora.rank and run.trainer.learning_rate < SMALLEST_RATE_OF_BFLOAT16:
            progress.line(
                f"Most steps of trainer.learning_rate={run.trainer.learning_rate:g} are rounded away in bfloat16 "
                "weights: set model.dtype=float32 with trainer.precision=bfloat16, or train an adapter "
                "(model.lora.rank=32)."
            )
        model, tokenizer = self._load(weights)
        if self.lora.rank:
            model = add_adapters(model, self.lora, self.seed, roles_with_adapters(run.team) or (DEFAULT,))
        if weights == self.path:
            progress.line(_size(model))
        return engine_settings(run.engine).policy(model, tokenizer)

    def load(self, run: "ModelSections", folder: Path) -> "TrainablePolicy":
        adapters = adapters_in(folder)
        if not adapters:
            return engine_settings(run.engine).policy(*self._load(str(folder)))
        team_roles = roles_with_adapters(run.team)
        if not team_roles and adapters.keys() != {DEFAULT} and run.team.name != "solo":
            raise ValueError(
                f"team.weights=shared: {folder} has an adapter for each of {', '.join(adapters)}, and plays by those. "
                "Set team.weights=adapter."
            )
        roles = [role for role in team_roles if role in adapters]
        adapters = {name: adapters[name] for name in roles or adapters}  # in the order of their creation
        model, tokenizer = self._load(base_of(next(iter(adapters.values()))))
        return engine_settings(run.engine).policy(load_adapters(model, adapters), tokenizer)

    def shows_date(self, options: Mapping[str, Any]) -> bool:
        """Return True if prompts depend on the date. The chat template of the named model and these options of it
        (`engine.chat_template_kwargs`) decide. Raises as `load_model`."""
        if self.path is None:
            return False
        from hgpo_gym.policies.chat_template import shows_date, template_of
        from hgpo_gym.policies.huggingface import load_tokenizer

        tokenizer = load_tokenizer(self.path)
        return tokenizer.chat_template is not None and shows_date(template_of(tokenizer, options))

    def _load(self, path: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        from hgpo_gym.policies.huggingface import load_model

        return load_model(path, device=self.device, dtype=self.dtype, quantization=self.quantization)


def _size(model: "PreTrainedModel") -> str:
    """Describe a model before the first long wait: its size, its trainable parameters, and its device."""
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    total = model.num_parameters()
    return f"{total:,} parameters on {model.device}, {'all' if trained == total else f'{trained:,}'} of which train"


def _check_together(run: "ModelSections", model: LanguageModel, processes: int) -> None:
    """Raise ValueError if several processes cannot use these settings."""
    if run.engine.options.get("server") is not None:
        raise ValueError(
            f"engine.server={run.engine.options['server']}: the weights of one process reach a server, {processes} "
            "were launched. Set engine.server=null, and each has an engine of its own, or launch one."
        )
    if run.distributed == "fsdp2" and run.trainer.optimizer != "adamw":
        raise ValueError(
            f"trainer.optimizer={run.trainer.optimizer}: it cannot hold parts of weights. Set adamw, or "
            "distributed=ddp."
        )
    if run.distributed == "fsdp2" and model.quantization is not None:
        raise ValueError(
            f"model.quantization={model.quantization}: weights in 4 bits are not divided. Set distributed=ddp."
        )
