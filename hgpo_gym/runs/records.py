"""The types of what stands in a run's files: a model for each kind of file. A file may be damaged or from somebody
else."""

from typing import Annotated, Any

from pydantic import AllowInfNan, BaseModel, ConfigDict, Field, NonNegativeFloat

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
PositiveCount = Annotated[int, Field(ge=1, lt=2**53)]
"""Counts are below the limit up to which a float holds every whole number: JSON has numbers that no float holds."""


class _Record(BaseModel):
    """Typed values that are read; a file may hold more."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class ConfigRecord(_Record):
    """config.yaml, by flat key."""

    env_name: str
    seed: int
    algorithm: str = Field(alias="algo.name")
    learner: str = Field(alias="learner.name")
    objective: str = Field(alias="objective.name")
    sampler: str = Field(alias="sampler.name")
    shaping: str = Field(alias="shaping.name")
    team: str = Field(alias="team.name")
    iterations: Count = Field(alias="trainer.iterations")
    max_grad_norm: float = Field(1.0, alias="trainer.max_grad_norm")
    num_tasks: PositiveCount = Field(alias="rollout.num_tasks")
    group_size: PositiveCount = Field(alias="rollout.group_size")


class MetricsRecord(_Record):
    """A line of metrics.jsonl. Everything else in it is a number, or nothing."""

    iteration: Annotated[int, Field(ge=1, lt=2**31)]
    success: Share
    steps: PositiveCount
    episodes: PositiveCount = 1
    tokens: Count = 0
    rounds: Annotated[int, Field(ge=1, lt=2**31)] = 1
    groups_kept: Annotated[int, Field(ge=0, lt=2**31)] = 0
    seconds_rollout: NonNegativeFloat
    seconds_advantage: NonNegativeFloat
    seconds_update: NonNegativeFloat
    group_sizes: list[list[Count]] = []
    __pydantic_extra__: dict[str, Annotated[float, AllowInfNan(True)] | None]


class EvaluationRecord(_Record):
    """A summary of `hgpo-gym eval`."""

    policy: str = "model"
    iteration: Count | None = None
    split: str
    success: Share
    success_by_decoding_seed: list[Share] = Field(min_length=1)
    success_by_task_type: dict[str, Share]
    pass_at_k: dict[str, Share] = {}
    tasks: PositiveCount
    changed: dict[str, Annotated[list[Any], Field(min_length=2, max_length=2)]] = {}


class _EvaluationWhileTraining(EvaluationRecord):
    iteration: Count


class _Tasks(_Record):
    split: str
    tasks: PositiveCount
    key: str


class _TasksOfRun(_Record):
    training: _Tasks
    evaluation: _Tasks


class _Seconds(_Record):
    rollout: NonNegativeFloat
    advantage: NonNegativeFloat
    update: NonNegativeFloat
    evaluation: NonNegativeFloat
    __pydantic_extra__: dict[str, NonNegativeFloat]


class SummaryRecord(_Record):
    """summary.json"""

    iterations: Count
    tasks: _TasksOfRun
    evaluations: list[_EvaluationWhileTraining] = Field(min_length=1)
    seconds: _Seconds


class _Evaluated(_Record):
    iteration: Count
    success: Share


class _Saved(_Record):
    bytes: Count
    sha256: str


class StateRecord(_Record):
    """state.json of a checkpoint."""

    iteration: Count
    run: str = ""
    evaluations: list[_Evaluated] = []
    history: _Saved | None = None


class LaunchRecord(_Record):
    """A line of launches.jsonl."""

    command: str
    versions: dict[str, str]
    code: dict[str, str] = {}
