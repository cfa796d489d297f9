"""`data.hgpo_gym` in verl's configuration: what the agent loop plays and what it records."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.plugins import load_plugins
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.recording import REWARDS
from hgpo_gym.section import SettingsSection, one_of, parse_section
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.settings import ChoiceSetting, EnvSettings, MemorySettings


def _prompt(value: Any) -> Any:
    template = PromptTemplate.named(value) if isinstance(value, str) else PromptTemplate(**value)
    if template.subgoals is not None:
        raise ValueError("responses with a plan (prompt=plan) need columns that verl's trainer does not have.")
    return template


class LoopSettings(SettingsSection):
    """The settings of the agent loop.

    Attributes:
        envs: by name, the id of an environment and its options. Files of data name them, see `Source`.
        seed: of tasks and episodes.
        memory: history in prompts, and context keys.
        prompt: a template of this package by name, or the fields of one.
        team: the roles that respond, and their options.
        sampler: the choice of training tasks, and its options; with several sources of tasks `in_order`.
        invalid_action_penalty: subtracted from the return of a step whose action was not valid.
        record: numbers in the environment's info to record at every step, such as `milestone`.
        shaping: the rewards that credit assignment sees, and its options.
        texts: record the text of each state, for `memory.similarity` and for estimators that compare texts.
        rewards: the rewards in the column `reward_vector`; empty for none.
        rows: what an output is: a response with its prompt, or the responses of an episode as one sequence, as far as
            prompts continue one another.
        max_retries: how often an episode is played again if its environment fails.
        max_failed: the largest share of a split's episodes that may fail in a validation.
        stop, stop_token_ids: texts and tokens that end a response too.
        template_date: the day for a chat template that shows the date; None is today.
        iterations: of the whole training. A weighted source of tasks has as many batches.
        train_tasks, validation_tasks: how many tasks of each source are used, evenly spread over it; None is all.
        mini_batch_size: rows of an optimiser step, about; None takes `ppo_mini_batch_size` task groups.
        run_dir: the run directory, with config.yaml, in which the trainer keeps metrics and rollouts; None for none.
        plugins: files or modules that register environments, estimators or teams.
    """

    envs: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    seed: NonNegativeInt = 0
    memory: MemorySettings = MemorySettings.model_validate({"window": 2, "history_length": 2, "key": "observation"})
    prompt: Annotated[PromptTemplate, BeforeValidator(_prompt)] = PromptTemplate.named("instruct")
    team: ChoiceSetting = Field(default_factory=lambda: Choice("solo"))
    sampler: ChoiceSetting = Field(default_factory=lambda: Choice("in_order"))
    invalid_action_penalty: NonNegativeFloat = 0.0
    record: list[str] = Field(default_factory=list)
    shaping: ChoiceSetting = Field(default_factory=lambda: Choice("none"))
    texts: bool = False
    rewards: list[Annotated[str, AfterValidator(one_of(REWARDS))]] = Field(default_factory=list)
    rows: Literal["step", "episode"] = "step"
    max_retries: NonNegativeInt = 2
    max_failed: Annotated[float, Field(ge=0, le=1)] = 0.25
    stop: list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list)
    template_date: str | None = None
    iterations: PositiveInt | None = None
    train_tasks: PositiveInt | None = None
    validation_tasks: PositiveInt | None = None
    mini_batch_size: PositiveInt | None = None
    run_dir: str | None = None
    plugins: list[str] = Field(default_factory=list)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings, after their plugins are loaded. Raises ValueError and ImportError."""
        load_plugins(values.get("plugins") or [])
        return parse_section(cls, values, "data.hgpo_gym.")

    @classmethod
    def of_data(cls, data: Any) -> Self:
        """Return the settings in verl's `data`, a DictConfig. Raises as `parse` does."""
        from omegaconf import OmegaConf  # the command that prints verl's settings does without

        values: Any = OmegaConf.to_container(data.hgpo_gym, resolve=True)
        return cls.parse(values)


class Source(NamedTuple):
    """An entry of `data.train_files` or `data.val_files`: `NAME`, `NAME:SPLIT` or `NAME:SPLIT*WEIGHT`.

    Attributes:
        env: a name in `data.hgpo_gym.envs`.
        split: of the environment; None where it has none.
        weight: the share of tasks that come from here, relative to the other sources. Without one, every task comes
            once, in the order of the split.
    """

    env: str
    split: str | None
    weight: float | None

    @classmethod
    def parse(cls, text: str, settings: LoopSettings) -> Self:
        """Return the source that a text names. Raises ValueError."""
        place, star, weight = text.partition("*")
        name, _, split = place.partition(":")
        if name not in settings.envs:
            raise ValueError(unknown_name("environment in data.train_files or data.val_files", name, settings.envs))
        try:
            number = float(weight) if star else None
        except ValueError:
            number = 0.0
        if number is not None and not 0 < number < float("inf"):
            raise ValueError(f"{text!r}: the weight after * must be a number above 0.")
        return cls(name, split or None, number)

    @property
    def label(self) -> str:
        """Return the name in metrics."""
        return self.env if self.split is None else f"{self.env}_{self.split}"

    def options(self, settings: LoopSettings) -> dict[str, Any]:
        """Return the options of the environment: `id`, and what `make` takes."""
        return {**settings.envs[self.env], **({} if self.split is None else {"split": self.split})}

    def step_limit(self, settings: LoopSettings) -> int:
        """Return the step limit of the environment."""
        options = self.options(settings)
        return EnvSettings(id=options.pop("id"), options=options).step_limit
