"""`model=features`: a softmax over scores of the admissible actions. General features of action and context give the
scores. It is small and trains fast."""

from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, model_validator

from hgpo_gym.policies import features
from hgpo_gym.policies.features.network import Network
from hgpo_gym.policies.features.policy import FeaturesPolicy
from hgpo_gym.trainers.models.scoring import ScoringModel
from hgpo_gym.trainers.models.sizes import check_fits


class FeaturesModel(ScoringModel):
    """See `configs/model/features.yaml`."""

    policy = FeaturesPolicy
    made_by = (features,)

    wide: Annotated[int, Field(ge=2)]
    deep: Annotated[int, Field(ge=2)]
    hidden_size: NonNegativeInt
    description_words: NonNegativeInt
    novelty: float
    relevance: float

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        shape = f"model.wide={self.wide} with model.deep={self.deep} and model.hidden_size={self.hidden_size}"
        check_fits(self.wide + self.deep * self.hidden_size, shape)
        return self

    def new(self) -> FeaturesPolicy:
        return FeaturesPolicy(
            Network(
                self.wide,
                self.deep,
                self.hidden_size,
                (-self.novelty, self.relevance),
                self.seed,
                self.description_words,
            )
        )
