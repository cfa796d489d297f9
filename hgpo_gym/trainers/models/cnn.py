"""`model=cnn`: a convolutional network that reads a map by its cells. Small, and quick to train."""

from typing import Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from hgpo_gym.trainers.models.choosing import ChoosingModel
from hgpo_gym.trainers.models.sizes import check_fits
from hgpo_gym.trainers.policies import cnn
from hgpo_gym.trainers.policies.cnn import ACTIONS, SIGNS, CnnPolicy, MapNetwork


class CnnModel(ChoosingModel):
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

    def new(self) -> CnnPolicy:
        return CnnPolicy(MapNetwork(self.channels, self.layers, self.seed))
