"""The settings of a run as typed records, one class a section of the configuration.

The YAML files in `configs/` hold the defaults and say what each key does; these classes check the values, all of them
at once and before anything runs. `RunSettings.parse` is the door: behind it nobody sees an untyped configuration.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.registry import Choice
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.models import MODELS, Model
from hgpo_gym.trainers.policies.base import Sampling
from hgpo_gym.trainers.update.aggregation import AGGREGATIONS
from hgpo_gym.trainers.update.corrections import CORRECTIONS


class Section(BaseModel):
    """Values that do not change, every one of its kind: 1 is no true, and "1" no number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )


def one_of(names: Iterable[str]) -> Callable[[str | None], str | None]:
    """A check of a value that is one of these, or None where that is allowed too."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise ValueError(unknown_name("name", value, names))
        return value

    return check


class EnvSettings(Section):
    """The environment: its id, and its options, `max_episode_steps` among them."""

    id: str
    options: dict[str, Any]


class MemorySettings(Section):
    window: NonNegativeInt | None
    history_length: NonNegativeInt
    key: str

    def make(self) -> Memory:
        return Memory(**self.model_dump())


class RolloutSettings(Section):
    num_tasks: PositiveInt
    group_size: PositiveInt
    workers: NonNegativeInt
    temperature: PositiveFloat
    max_new_tokens: PositiveInt
    record: list[str]

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens)


class TrainerSettings(Section):
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
    loss_aggregation: Annotated[str | None, AfterValidator(one_of(AGGREGATIONS))]
    loss_constant: PositiveFloat
    max_grad_norm: PositiveFloat
    invalid_action_penalty: NonNegativeFloat
    max_batch_tokens: PositiveInt
    recompute_logprobs: bool
    importance_correction: Annotated[str, AfterValidator(one_of(CORRECTIONS))]
    importance_cap: PositiveFloat
    importance_options: dict[str, Any]
    off_policy_limit: float | None
    optimizer: Literal["adamw", "adamw_8bit"]
    precision: Literal["float32", "bfloat16"]
    gradient_checkpointing: bool

    @model_validator(mode="after")
    def _check_correction(self) -> Self:
        CORRECTIONS.check_options(*self.correction)
        return self

    @property
    def correction(self) -> Choice:
        """The importance correction; its cap is `importance_cap` where it has one."""
        capped = "cap" in CORRECTIONS.options(self.importance_correction)
        cap = {"cap": self.importance_cap} if capped else {}
        return Choice(self.importance_correction, {**cap, **self.importance_options})


class EvaluationSettings(Section):
    every: NonNegativeInt
    split: str | list[str] | None
    decoding_seeds: PositiveInt
    temperature: NonNegativeFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    num_envs: PositiveInt

    def sampling(self, max_new_tokens: int) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_new_tokens=max_new_tokens)


class CheckpointSettings(Section):
    every: PositiveInt
    keep: PositiveInt
    keep_best: bool
    rollouts_every: NonNegativeInt


class WarmStartSettings(Section):
    source: Literal["none", "expert", "random"]
    episodes: PositiveInt
    random_actions: Annotated[float, Field(ge=0, lt=1)]
    epochs: NonNegativeInt
    learning_rate: NonNegativeFloat
    batch_size: PositiveInt


def _choice(value: Any) -> Any:
    """`{name: gigpo, gamma: 0.9}`, or a name alone."""
    if isinstance(value, Choice):
        return value
    if isinstance(value, str):
        return Choice(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("expected a name, with options beside it")
    return Choice(value["name"], {key: option for key, option in value.items() if key != "name"})


def _environment(value: Any) -> Any:
    if not isinstance(value, dict) or "id" not in value:
        return value
    return {"id": value["id"], "options": {key: option for key, option in value.items() if key != "id"}}


def _model(value: Any) -> Any:
    if isinstance(value, dict):
        return MODELS.bind(Choice(value["kind"], {key: option for key, option in value.items() if key != "kind"}))()
    return value


def _engine(value: Any) -> Any:
    return _choice({"name": value["kind"]} | {key: option for key, option in value.items() if key != "kind"})


def _path(value: Any) -> Any:
    return Path(value) if isinstance(value, str) else value


def _prompt(value: Any) -> Any:
    return PromptTemplate(**value) if isinstance(value, dict) else value


ChoiceSetting = Annotated[Choice, BeforeValidator(_choice)]


class RunSettings(Section):
    """All settings of a run.

    Attributes:
        resolved: the configuration that they were parsed from, as it is written to config.yaml.
    """

    seed: NonNegativeInt
    run_dir: Annotated[Path, BeforeValidator(_path)]
    resume: Literal["never", "auto", "must"]
    loggers: list[str]
    distributed: Literal["none", "ddp", "fsdp2"]
    plugins: list[str]
    env_name: str
    tiny: dict[str, Any]
    env: Annotated[EnvSettings, BeforeValidator(_environment)]
    memory: MemorySettings
    prompt: Annotated[PromptTemplate, BeforeValidator(_prompt)]
    model: Annotated[Model, BeforeValidator(_model)]
    engine: Annotated[Choice, BeforeValidator(_engine)]
    learner: ChoiceSetting
    algo: ChoiceSetting
    objective: ChoiceSetting
    team: ChoiceSetting
    sampler: ChoiceSetting
    shaping: ChoiceSetting
    rollout: RolloutSettings
    trainer: TrainerSettings
    evaluation: EvaluationSettings
    checkpoint: CheckpointSettings
    warmstart: WarmStartSettings
    resolved: dict[str, Any] = Field(repr=False)

    @classmethod
    def parse(cls, resolved: Mapping[str, Any]) -> Self:
        """The settings that a composed configuration holds; keys of commands beside them are left out.

        Raises:
            ValueError: names every setting that cannot be, its value, and what could be.
        """
        own = {name: resolved[name] for name in cls.model_fields if name in resolved}
        return parse_section(cls, {**own, "resolved": own})

    def changed(self, **values: Any) -> Self:
        """The same with other values of top-level keys."""
        return type(self).parse({**self.resolved, **values})


SectionT = type[Section]


def parse_section(section: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    """A record of these values.

    Args:
        section: a subclass of `Section`.
        values: by field.
        prefix: what stands before a field's name in messages, such as "openai.".

    Raises:
        ValueError: names every value that cannot be.
    """
    try:
        return section.model_validate(dict(values))  # type: ignore[attr-defined]
    except ValidationError as error:
        raise ValueError("\n".join(dict.fromkeys(map(_explained, _errors(error, prefix))))) from None


class _Mistake(dict[str, Any]):
    """An entry of `ValidationError.errors()`, its location in dots."""


def _errors(error: ValidationError, prefix: str) -> list[_Mistake]:
    mistakes = []
    for entry in error.errors(include_url=False):
        where = prefix + ".".join(str(part) for part in entry["loc"] if isinstance(part, str) and part.islower())
        if isinstance(inner := entry.get("ctx", {}).get("error"), ValidationError):
            mistakes += _errors(inner, f"{where}.")
        else:
            mistakes.append(_Mistake({**entry, "where": where}))
    return mistakes


_WORDS = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be above {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be below {lt:g}",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "list_type": "expected a list, [a, b]",
    "dict_type": "expected a mapping, {{a: 1}}",
    "none_required": "or null",
}


def _explained(mistake: _Mistake) -> str:
    where, value, context = mistake["where"], mistake["input"], mistake.get("ctx", {})
    if mistake["type"] == "value_error":
        message = str(context["error"]).replace("Unknown name", f"Unknown {where}", 1)
        return message if message.startswith((where, "Unknown")) else f"{where}: {message}"
    if mistake["type"] == "missing":
        return f"{where} is not set."
    if mistake["type"] == "extra_forbidden":
        return f"There is no setting {where}."
    if mistake["type"] == "literal_error":
        return unknown_name(
            where, value, [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        )
    words = _WORDS.get(mistake["type"])
    return f"{where}={value}: {words.format(**context) if words else mistake['msg']}."
