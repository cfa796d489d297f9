"""`model=cnn`: a convolutional network that reads a map by its cells. Small, and quick to train."""

from pathlib import Path
from typing import Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from hgpo_gym.trainers.models.choosing import ChoosingModel
from hgpo_gym.trainers.models.sizes import check_fits
from hgpo_gym.trainers.policies import cnn
from hgpo_gym.trainers.policies.cnn import CnnPolicy, MapNetwork


class CnnModel(ChoosingModel):
    """See `configs/model/cnn.yaml`."""

    kind = "cnn"
    made_by = (cnn,)

    channels: PositiveInt
    layers: NonNegativeInt

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        check_fits(
            9 * (self.layers + 1) * self.channels**2, f"model.channels={self.channels} with model.layers={self.layers}"
        )
        return self

    def new(self) -> CnnPolicy:
        return CnnPolicy(MapNetwork(self.channels, self.layers, self.seed))

    def saved(self, folder: Path) -> CnnPolicy:
        return CnnPolicy.load(folder)
