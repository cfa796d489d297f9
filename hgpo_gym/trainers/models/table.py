"""`model=tabular`: a table of logits, for environments that name their admissible actions."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.section import SettingsSection
from hgpo_gym.trainers.models.admissible import check_chooses
from hgpo_gym.trainers.models.sizes import Threads, check_fits

if TYPE_CHECKING:
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.settings import ModelSections


class TableModel(SettingsSection):
    """See `configs/model/tabular.yaml`."""

    is_language_model: ClassVar[bool] = False
    writes_text: ClassVar[bool] = False
    has_states: ClassVar[bool] = True

    level: NonNegativeInt | None
    capacity: PositiveInt
    threads: Threads | None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        check_fits(self.capacity, f"model.capacity={self.capacity}")
        return self

    @property
    def imitates(self) -> bool:
        """Return False: a table starts uniform."""
        return False

    def check(self, run: "ModelSections", processes: int) -> None:
        if processes > 1:
            raise ValueError("model.kind=tabular trains in one process: launch one, or set another model=.")
        check_chooses(run, "table")
        if run.warmstart.source != "none":
            raise ValueError(f"warmstart.source={run.warmstart.source}: a table starts uniform; set it to none.")
        if run.environments.rollout.overlap:
            raise ValueError(
                "rollout.overlap=true: a table makes room for what it meets while it learns, which is not seen where "
                "rollouts are played ahead, and its updates take no time. Set rollout.overlap=false."
            )
        if run.trainer.gradient_checkpointing:
            raise ValueError(
                "trainer.gradient_checkpointing=true: a table has no layers to checkpoint; set it to false."
            )
        if self.level is not None:
            _check_level(self.level, run)

    def initial(self, run: "ModelSections", progress: "Progress") -> TabularPolicy:  # noqa: ARG002 - Model
        level = run.environments.memory.history_length if self.level is None else self.level
        return TabularPolicy(LogitTable(self.capacity), level)

    def load(self, run: "ModelSections", folder: Path) -> TabularPolicy:
        policy = TabularPolicy.load(folder)
        _check_level(policy.level, run)
        return policy


def _check_level(level: int, run: "ModelSections") -> None:
    deepest = run.environments.memory.history_length
    if level > deepest:
        raise ValueError(f"model.level={level}: memory.history_length={deepest} makes levels 0 to {deepest}.")
