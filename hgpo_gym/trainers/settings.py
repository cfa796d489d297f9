"""The settings of a run, one class a section of the configuration. The YAML files in `configs/` hold the defaults and
say what each key does; the classes check the values, so that a mistake shows before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any
from urllib.parse import urlsplit

from hgpo_gym.advantages.statistics import NORMS
from hgpo_gym.registry import Choice
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.policies.base import Sampling
from hgpo_gym.trainers.update.aggregation import AGGREGATIONS
from hgpo_gym.trainers.update.corrections import CORRECTIONS

ON_FAILURE = ("stop", "empty")
WARMSTART_SOURCES = ("none", "expert", "random")
PRECISIONS = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "adamw_8bit")


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    num_tasks: int
    group_size: int
    workers: int
    temperature: float
    max_new_tokens: int

    def __post_init__(self) -> None:
        _at_least("rollout", self, num_tasks=1, group_size=1, workers=0)
        if self.temperature <= 0:
            raise ValueError(f"rollout.temperature={self.temperature}: training needs a temperature above 0.")

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens)


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    iterations: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    mini_batch_size: int
    update_epochs: int
    clip_low: float
    clip_high: float
    kl_coef: float
    entropy_coef: float
    loss_aggregation: str | None
    loss_constant: float
    max_grad_norm: float
    invalid_action_penalty: float
    max_batch_tokens: int
    recompute_logprobs: bool
    importance_correction: str
    importance_cap: float
    importance_options: Mapping[str, Any]
    off_policy_limit: float | None
    optimizer: str
    precision: str
    gradient_checkpointing: bool

    def __post_init__(self) -> None:
        _at_least("trainer", self, iterations=0, warmup_steps=0, mini_batch_size=1, update_epochs=1, max_batch_tokens=1)
        _at_least("trainer", self, learning_rate=0, weight_decay=0, clip_low=0, clip_high=0, kl_coef=0)
        _at_least("trainer", self, entropy_coef=0, invalid_action_penalty=0)
        if self.max_grad_norm <= 0:
            raise ValueError(f"trainer.max_grad_norm={self.max_grad_norm}: must be above 0.")
        if self.importance_cap <= 0:
            raise ValueError(f"trainer.importance_cap={self.importance_cap}: must be above 0.")
        if self.loss_constant <= 0:
            raise ValueError(f"trainer.loss_constant={self.loss_constant}: must be above 0.")
        choices = {
            "loss_aggregation": AGGREGATIONS,
            "importance_correction": tuple(CORRECTIONS),
            "optimizer": OPTIMIZERS,
            "precision": PRECISIONS,
        }
        for name, valid in choices.items():
            value = getattr(self, name)
            if value not in valid and (name, value) != ("loss_aggregation", None):
                raise ValueError(unknown_name(f"trainer.{name}", value, valid))
        CORRECTIONS.check_options(*self.correction)

    @property
    def correction(self) -> Choice:
        """The importance correction; its cap is `importance_cap` where it has one."""
        capped = "cap" in CORRECTIONS.options(self.importance_correction)
        cap = {"cap": self.importance_cap} if capped else {}
        return Choice(self.importance_correction, {**cap, **self.importance_options})


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    every: int
    split: str | list[str] | None
    decoding_seeds: int
    temperature: float
    top_p: float
    num_envs: int

    def __post_init__(self) -> None:
        _at_least("evaluation", self, every=0, decoding_seeds=1, num_envs=1)

    def sampling(self, max_new_tokens: int) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_new_tokens=max_new_tokens)


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    every: int
    keep: int
    keep_best: bool
    rollouts_every: int

    def __post_init__(self) -> None:
        _at_least("checkpoint", self, every=1, keep=1, rollouts_every=0)


@dataclass(frozen=True, kw_only=True)
class WarmstartSettings:
    source: str
    episodes: int
    random_actions: float
    epochs: int
    learning_rate: float
    batch_size: int

    def __post_init__(self) -> None:
        if self.source not in WARMSTART_SOURCES:
            raise ValueError(unknown_name("warmstart.source", self.source, WARMSTART_SOURCES))
        _at_least("warmstart", self, episodes=1, random_actions=0, epochs=0, learning_rate=0, batch_size=1)
        if self.random_actions >= 1:
            raise ValueError(f"warmstart.random_actions={self.random_actions}: a share of steps below 1.")


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    base_url: str
    model: str
    key_variable: str
    chat: bool
    concurrency: int
    retries: int
    timeout: float
    on_failure: str
    token_limit: str
    send_seed: bool
    extra: Mapping[str, Any]
    price_input: float | None
    price_output: float | None

    def __post_init__(self) -> None:
        if self.model is None:
            raise ValueError("openai.model=None: name the model as the endpoint does, for example openai.model=gpt-4o.")
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"openai.base_url={self.base_url}: write it like http://localhost:8000/v1.")
        if url.username or url.password:
            raise ValueError(
                "openai.base_url holds a password, which would be shown with the settings: put the key in the "
                f"environment variable {self.key_variable}."
            )
        _at_least("openai", self, concurrency=1, retries=0)
        if self.timeout <= 0:
            raise ValueError(f"openai.timeout={self.timeout}: must be above 0 seconds.")
        if self.on_failure not in ON_FAILURE:
            raise ValueError(unknown_name("openai.on_failure", self.on_failure, ON_FAILURE))


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    rank: int | None
    alpha: float
    dropout: float
    target_modules: str | list[str]

    def __post_init__(self) -> None:
        if self.rank is not None:
            _at_least("model.lora", self, rank=1, alpha=0, dropout=0)
        if self.dropout >= 1:
            raise ValueError(f"model.lora.dropout={self.dropout}: a probability below 1.")


@dataclass(frozen=True, kw_only=True)
class DiagnoseSettings:
    estimators: Mapping[str, Mapping[str, Any]]
    gamma: float
    norm: str
    group_sizes: Sequence[int]
    tasks: int
    episodes: int
    improvements: Sequence[int]
    random_actions: Sequence[float]
    probes: int
    continuations: int

    def __post_init__(self) -> None:
        _at_least("diagnose", self, tasks=1, episodes=2, probes=1, continuations=2)
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"diagnose.gamma={self.gamma}: a discount lies in [0, 1].")
        if self.norm not in NORMS:
            raise ValueError(unknown_name("diagnose.norm", self.norm, NORMS))
        ranges = {"group_sizes": (2, inf), "improvements": (0, inf), "random_actions": (0, 1)}
        for name, (least, most) in ranges.items():
            values = getattr(self, name)
            if not values or not all(least <= value <= most for value in values):
                bounds = f"{least} or more" if most == inf else f"from {least} to {most}"
                raise ValueError(f"diagnose.{name}={list(values)}: a list of numbers, each {bounds}.")


def _at_least(section: str, settings: object, **least: float) -> None:
    for name, bound in least.items():
        if (value := getattr(settings, name)) is None or value < bound:
            raise ValueError(f"{section}.{name}={value}: must be at least {bound}.")
