"""The settings of a run as typed records, one class per section of the configuration.

The YAML files in `configs/` hold the defaults and explain each key. These classes check all values at once, before
anything runs. `RunSettings.parse` is the entry point: no other code sees an untyped configuration.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import gymnasium
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
    create_model,
    model_validator,
)

from hgpo_gym.advantages.statistics import EPISODE_STATISTICS
from hgpo_gym.memory.forms import MEMORIES, make_memory
from hgpo_gym.memory.keys import KEY_FUNCTIONS
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.policies.base import Sampling
from hgpo_gym.policies.engines import engine_settings
from hgpo_gym.registry import Choice
from hgpo_gym.section import SettingsSection, one_of, parse_section
from hgpo_gym.trainers.credit_settings import CreditSettings, separated
from hgpo_gym.trainers.model_kinds import MODELS, Model
from hgpo_gym.trainers.update.objectives import preferred_aggregation
from hgpo_gym.trainers.update.settings import TrainerSettings


class EnvSettings(SettingsSection):
    """The environment: its id and its options, including `max_episode_steps`."""

    id: str
    options: dict[str, Any]

    @property
    def step_limit(self) -> int:
        """Return `max_episode_steps`, or the environment's default if that is null or not set."""
        limit = self.options.get("max_episode_steps") or gymnasium.spec(self.id).max_episode_steps
        if limit is None:
            raise ValueError(f"{self.id} has no step limit of its own: set env.max_episode_steps.")
        return limit


MOST_EPISODES = 65_536
"""The most episodes side by side. Each has an environment and a row in every batch."""
Episodes = Annotated[int, Field(gt=0, le=MOST_EPISODES)]


class MemorySettings(SettingsSection):
    """The form of memory, and its options; those that every form has are fields.

    Args:
        similarity: give observations of a task group one context key if the share of words that they have in common, in
            order, is at least this: 0 to 1; null compares them exactly. For texts that seldom recur, such as search
            results.
    """

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, AfterValidator(one_of(MEMORIES))] = "window"
    history_length: Annotated[int, Field(ge=0, le=1000)]
    key: Annotated[str, AfterValidator(one_of(KEY_FUNCTIONS))]
    similarity: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        try:
            self.make()
        except ValueError as error:
            raise ValueError(f"memory.{error}" if "=" in str(error).split(":")[0] else f"memory: {error}") from None
        return self

    @property
    def choice(self) -> Choice:
        """Return the form with all its options."""
        return Choice(self.name, self.model_dump(exclude={"name", "similarity"}))

    def make(self) -> Memory:
        """Return a new memory."""
        return make_memory(self.name, **self.choice.options)


class RolloutSettings(SettingsSection):
    num_tasks: Episodes
    group_size: Episodes
    train_tasks: PositiveInt | None
    workers: Annotated[int, Field(ge=0, le=1024)]
    worker_timeout: PositiveFloat | None
    max_retries: NonNegativeInt | None
    max_failed: Annotated[float, Field(ge=0, le=1)]
    staleness: Annotated[int, Field(ge=0, le=1000)]
    overlap: bool
    temperature: PositiveFloat
    max_new_tokens: Annotated[int, Field(gt=0, le=131_072)]
    record: list[str]

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if (episodes := self.num_tasks * self.group_size) > MOST_EPISODES:
            raise ValueError(
                f"rollout.num_tasks={self.num_tasks} with rollout.group_size={self.group_size} makes {episodes:,} "
                f"episodes side by side: choose at most {MOST_EPISODES:,}."
            )
        return self

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        if self.overlap and not self.staleness:
            raise ValueError(
                "rollout.overlap=true with rollout.staleness=0: while an update goes on there are older weights alone "
                "to play by. Set rollout.staleness=1, or rollout.overlap=false."
            )
        return self

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens)


class EvaluationSettings(SettingsSection):
    every: NonNegativeInt
    split: str | list[str] | None
    tasks: PositiveInt | None
    decoding_seeds: Annotated[int, Field(gt=0, le=1000)]
    temperature: NonNegativeFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    num_envs: Episodes

    def sampling(self, max_new_tokens: int) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_new_tokens=max_new_tokens)


class CheckpointSettings(SettingsSection):
    every: PositiveInt
    keep: PositiveInt
    keep_best: bool
    rollouts_every: NonNegativeInt
    transcripts: NonNegativeInt | None


class TinySettings(SettingsSection):
    """The values that suit `model=tiny`: the shape of the model and its update."""

    hidden_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    vocabulary_size: PositiveInt
    learning_rate: NonNegativeFloat
    entropy_coef: NonNegativeFloat


class WarmStartSettings(SettingsSection):
    source: Literal["auto", "none", "expert", "random"]
    new_model: Literal["none", "expert", "random"]
    episodes: PositiveInt
    random_actions: Annotated[float, Field(ge=0, lt=1)]
    epochs: NonNegativeInt
    learning_rate: NonNegativeFloat
    batch_size: PositiveInt
    loss: Literal["tokens", "choices"]


def _choice(value: Any, key: str = "name") -> Choice:
    """Parse `{name: gigpo, gamma: 0.9}`, or a name alone."""
    if isinstance(value, Choice):
        return value
    if isinstance(value, str):
        return Choice(value)
    if not isinstance(value, dict) or not isinstance(value.get(key), str):
        raise ValueError(f"expected a {key}, with options beside it.")
    return Choice(value[key], {option: setting for option, setting in value.items() if option != key})


def _environment(value: Any) -> Any:
    if not isinstance(value, dict) or "id" not in value:
        raise ValueError("expected the id of an environment, with its options beside it.")
    limit = value.get("max_episode_steps")
    # bool is a subclass of int: without this check `true` would pass as 1.
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ValueError(f"env.max_episode_steps={limit}: choose 1 or more, or null for the environment's own.")
    return {"id": value["id"], "options": {key: option for key, option in value.items() if key != "id"}}


def _model(value: Any) -> Any:
    kind, options = _choice(value, "kind")
    model_class = MODELS.find(kind)
    if isinstance(model_class, type) and issubclass(model_class, BaseModel):
        return parse_section(model_class, options, "model.")
    return MODELS.bind(Choice(kind, options))()


def _engine(value: Any) -> Choice:
    choice = _choice(value, "kind")
    engine_settings(choice)
    return choice


def _folder(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected a folder.")
    return Path(value)


_PromptSettings = create_model(  # type: ignore[call-overload]
    "_PromptSettings",
    __base__=SettingsSection,
    **{
        field.name: (field.type, ... if field.default is MISSING else field.default)
        for field in fields(PromptTemplate)
        if field.name != "notes"  # a memory sets it
    },
)


def _prompt(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("expected the texts of a prompt template.")
    template = PromptTemplate(**parse_section(_PromptSettings, value, "prompt.").model_dump())
    template.check_complete()
    return template


ChoiceSetting = Annotated[Choice, BeforeValidator(lambda value: _choice(value))]


class PlaySettings(SettingsSection):
    """The settings that are needed to play episodes, for example by hand. They need no torch.

    Attributes:
        resolved: the configuration that the settings were parsed from.
    """

    seed: NonNegativeInt
    env_name: Annotated[str, Field(min_length=1)]
    env: Annotated[EnvSettings, BeforeValidator(_environment)]
    memory: MemorySettings
    rollout: RolloutSettings
    resolved: dict[str, Any] = Field(repr=False)

    @classmethod
    def parse(cls, resolved: Mapping[str, Any]) -> Self:
        """Parse a composed configuration. Keys that belong to commands are left out.

        Raises:
            ValueError: names every invalid setting, its value, and the valid values.
        """
        values = {name: resolved[name] for name in cls.model_fields if name in resolved}
        return parse_section(cls, {**values, **cls._derived(values), "resolved": values})

    @classmethod
    def _derived(cls, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003 - for subclasses
        """Return settings that are parts of others."""
        return {}


class EnvironmentSections(NamedTuple):
    """The sections that environments are made by."""

    env: EnvSettings
    memory: MemorySettings
    prompt: PromptTemplate
    rollout: RolloutSettings


class ModelSections(NamedTuple):
    """The sections that a model is made by, besides its own."""

    environments: EnvironmentSections
    engine: Choice
    team: Choice
    trainer: TrainerSettings
    warmstart: WarmStartSettings
    distributed: str
    resolved: Mapping[str, Any]


class RunSettings(PlaySettings):
    """All settings of a run. `resolved` is written to config.yaml.

    Attributes:
        algo: the estimator, with its options alone.
        credit: the settings of `algo` that are no options of its estimator.
    """

    run_dir: Annotated[Path, BeforeValidator(_folder)]
    resume: Literal["never", "auto", "must"]
    loggers: list[str]
    distributed: Literal["none", "ddp", "fsdp2"]
    plugins: list[str]
    episode_statistics: Annotated[str, AfterValidator(one_of(EPISODE_STATISTICS))] = "trajectories"
    tiny: TinySettings
    prompt: Annotated[PromptTemplate, BeforeValidator(_prompt)]
    model: Annotated[Model, BeforeValidator(_model)]
    engine: Annotated[Choice, BeforeValidator(_engine)]
    learner: ChoiceSetting
    algo: ChoiceSetting
    objective: ChoiceSetting
    correction: ChoiceSetting
    team: ChoiceSetting
    sampler: ChoiceSetting
    shaping: ChoiceSetting
    trainer: TrainerSettings
    credit: CreditSettings = CreditSettings()
    evaluation: EvaluationSettings
    checkpoint: CheckpointSettings
    warmstart: WarmStartSettings

    @model_validator(mode="after")
    def _check_constant(self) -> Self:
        constant = self.trainer.loss_constant
        aggregation = self.trainer.loss_aggregation or preferred_aggregation(self.objective.name)
        if constant is not None and aggregation != "sequence_sum":
            raise ValueError(
                f"trainer.loss_constant={constant}: trainer.loss_aggregation={aggregation} does not divide by a "
                "constant. Set trainer.loss_aggregation=sequence_sum, or trainer.loss_constant=null."
            )
        return self

    @classmethod
    def _derived(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        if "algo" not in values:
            return {}
        try:
            algo, settings = separated(_choice(values["algo"]))
        except ValueError:
            return {}  # the field `algo` names the mistake
        return {"algo": algo, "credit": parse_section(CreditSettings, settings, "algo.")}

    @classmethod
    def parse(cls, resolved: Mapping[str, Any]) -> Self:
        """Parse a composed configuration, see `PlaySettings`. `warmstart.source=auto` becomes the model's default
        source."""
        settings = super().parse(resolved)
        if settings.warmstart.source != "auto":
            return settings
        source = settings.warmstart.new_model if settings.model.imitates else "none"
        return settings.changed(warmstart={**settings.resolved["warmstart"], "source": source})

    @property
    def choices(self) -> dict[str, Choice]:
        """Return what is chosen by name, by group."""
        return {group: choice for group, choice in self if isinstance(choice, Choice)} | {"memory": self.memory.choice}

    @property
    def unread(self) -> dict[str, str]:
        """The settings that this run does not read, each with the reason, see `section.unread`."""
        source = self.warmstart.source
        from_scratch = self.model.is_language_model and not self.resolved["model"].get("path")
        reasons: dict[str, str] = {}
        if self.learner.name == "sb3":
            names = ("learning_rate", "mini_batch_episodes", "mini_batch_size", "update_epochs")
            sections = ("objective", "correction", "warmstart", "rollout.temperature")
            keys = [*(f"trainer.{name}" for name in names), *sections]
            reasons |= dict.fromkeys(keys, f"algo={self.algo.name} has a network and options of its own, algo.*")
        if source == "none":
            # A model made from scratch also builds its vocabulary from the episodes.
            names = ("epochs", "learning_rate", "batch_size", "loss", *(() if from_scratch else ("episodes",)))
            reasons |= dict.fromkeys((f"warmstart.{name}" for name in names), "warmstart.source=none imitates nothing")
        if source != "expert":
            reasons["warmstart.random_actions"] = f"warmstart.source={source} is no expert"
        if not from_scratch:
            names = ("hidden_size", "layers", "heads", "vocabulary_size")
            reasons |= dict.fromkeys((f"tiny.{name}" for name in names), "model=tiny alone makes a model from scratch")
        return reasons

    @property
    def environments(self) -> EnvironmentSections:
        return EnvironmentSections(self.env, self.memory, self.prompt, self.rollout)

    @property
    def for_model(self) -> ModelSections:
        return ModelSections(
            self.environments,
            self.engine,
            self.team,
            self.trainer,
            self.warmstart,
            self.distributed,
            self.resolved,
        )

    def at_date(self, date: str | None) -> Self:
        """Return the settings with this date in the chat template. None leaves them unchanged."""
        return self if date is None else self.changed(engine={**self.resolved["engine"], "template_date": date})

    def changed(self, **values: Any) -> Self:
        """Return the settings with other values of top-level keys."""
        return type(self).parse({**self.resolved, **values})
