"""The types of the values that a report reads from a run's files, which may be damaged or from somebody else."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

Share = Annotated[float, Field(ge=0, le=1)]


class _Record(BaseModel):
    """Typed values that the report reads; a file may hold more."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class SettingsInReport(_Record):
    """config.yaml, by flat key."""

    env_name: str
    seed: int
    algorithm: str = Field(alias="algo.name")
    learner: str = Field(alias="learner.name")
    objective: str = Field(alias="objective.name")
    sampler: str = Field(alias="sampler.name")
    shaping: str = Field(alias="shaping.name")
    team: str = Field(alias="team.name")
    iterations: NonNegativeInt = Field(alias="trainer.iterations")
    num_tasks: PositiveInt = Field(alias="rollout.num_tasks")
    group_size: PositiveInt = Field(alias="rollout.group_size")


class IterationInReport(_Record):
    """A line of metrics.jsonl."""

    iteration: Annotated[int, Field(ge=1, lt=2**31)]
    success: Share
    steps: Annotated[int, Field(ge=1, lt=2**53)]
    episodes: Annotated[int, Field(ge=1, lt=2**53)] = 1
    tokens: Annotated[int, Field(ge=0, lt=2**53)] = 0
    rounds: Annotated[int, Field(ge=1, lt=2**31)] = 1
    groups_kept: Annotated[int, Field(ge=0, lt=2**31)] = 0
    seconds_rollout: NonNegativeFloat
    seconds_advantage: NonNegativeFloat
    seconds_update: NonNegativeFloat
    group_sizes: list[list[Annotated[int, Field(ge=0, lt=2**53)]]] = []


class EvaluationInReport(_Record):
    """A summary of `hgpo-gym eval`."""

    policy: str = "model"
    iteration: NonNegativeInt | None = None
    split: str
    success: Share
    success_by_decoding_seed: list[Share] = Field(min_length=1)
    success_by_task_type: dict[str, Share]
    pass_at_k: dict[str, Share] = {}
    tasks: PositiveInt
    changed: dict[str, Annotated[list[Any], Field(min_length=2, max_length=2)]] = {}


class EvaluationWhileTraining(EvaluationInReport):
    iteration: NonNegativeInt


class TasksInReport(_Record):
    split: str
    tasks: PositiveInt
    key: str


class TasksOfRun(_Record):
    training: TasksInReport
    evaluation: TasksInReport


class Seconds(_Record):
    rollout: NonNegativeFloat
    advantage: NonNegativeFloat
    update: NonNegativeFloat
    evaluation: NonNegativeFloat
    __pydantic_extra__: dict[str, NonNegativeFloat]


class SummaryInReport(_Record):
    """summary.json"""

    tasks: TasksOfRun | None = None
    evaluations: list[EvaluationWhileTraining] = Field(min_length=1)
    seconds: Seconds


class LaunchInReport(_Record):
    """A line of launches.jsonl."""

    command: str
    versions: dict[str, str]
    code: dict[str, str] = {}
