"""`model=cnn`: a convolutional network that reads the cells of a map. It is small and trains fast."""

from typing import TYPE_CHECKING, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from hgpo_gym.policies import cnn
from hgpo_gym.policies.cnn import ACTIONS, SIGNS, CnnPolicy, MapNetwork
from hgpo_gym.trainers.models.scoring import ScoringModel
from hgpo_gym.trainers.models.sizes import check_fits

if TYPE_CHECKING:
    from hgpo_gym.trainers.settings import ModelSections


class CnnModel(ScoringModel):
    """See `configs/model/cnn.yaml`."""

    policy = CnnPolicy
    made_by = (cnn,)

    channels: PositiveInt
    layers: NonNegativeInt

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        weights = (9 * (self.layers + 1) + 2) * self.channels**2 + (SIGNS + ACTIONS) * self.channels
        check_fits(weights, f"model.channels={self.channels} with model.layers={self.layers}")
        return self

    def check(self, run: "ModelSections", processes: int) -> None:
        super().check(run, processes)
        if run.team.name != "solo":
            raise ValueError(
                f"team={run.team.name}: a cnn reads the map alone, and nothing of what others say. Choose team=solo, "
                "or model=features."
            )

    def new(self) -> CnnPolicy:
        return CnnPolicy(MapNetwork(self.channels, self.layers, self.seed))
