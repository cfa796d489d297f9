"""`model=scorer`: a softmax over scores of the admissible actions, from general features of how an action fits its
moment. Small, and quick to train."""

from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, model_validator

from hgpo_gym.policies import scorer
from hgpo_gym.policies.scorer.network import Network
from hgpo_gym.policies.scorer.policy import ScorerPolicy
from hgpo_gym.trainers.models.scoring import ScoringModel
from hgpo_gym.trainers.models.sizes import check_fits


class ScorerModel(ScoringModel):
    """See `configs/model/scorer.yaml`."""

    policy = ScorerPolicy
    made_by = (scorer,)

    wide: Annotated[int, Field(ge=2)]
    deep: Annotated[int, Field(ge=2)]
    hidden_size: NonNegativeInt
    novelty: float
    relevance: float

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        shape = f"model.wide={self.wide} with model.deep={self.deep} and model.hidden_size={self.hidden_size}"
        check_fits(self.wide + self.deep * self.hidden_size, shape)
        return self

    def new(self) -> ScorerPolicy:
        return ScorerPolicy(Network(self.wide, self.deep, self.hidden_size, (-self.novelty, self.relevance), self.seed))
