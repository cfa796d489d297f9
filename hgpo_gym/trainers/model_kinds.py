"""What answers: kinds of models, each with its settings, the policy that training starts from, and how it is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hgpo_gym.registry import Registry

if TYPE_CHECKING:
    from hgpo_gym.policies.base import TrainablePolicy
    from hgpo_gym.progress import Progress


@runtime_checkable
class Model(Protocol):
    """The settings of a kind of model, and what makes policies of them. `run` are the settings of the whole run, the
    `RunSettings` that these are a part of.

    Attributes:
        threads: CPU threads of torch; None leaves the choice to torch.
        imitates: whether it imitates episodes before training where `warmstart.source` is auto: weights that are made
            here do, weights that somebody gave do not.
    """

    threads: int | None

    @property
    def imitates(self) -> bool: ...

    def check(self, run: Any, processes: int) -> None:
        """Raise ValueError where these settings do not go together with the run's, or with as many processes."""

    def initial(self, run: Any, progress: "Progress") -> "TrainablePolicy":
        """The policy that training starts from."""

    def load(self, run: Any, folder: Path) -> "TrainablePolicy":
        """A policy that was saved in `folder`. Raises FileNotFoundError if there is none of this kind."""


MODELS = Registry(
    "model.kind",
    {
        "language_model": "hgpo_gym.trainers.models.language_model:LanguageModel",
        "tabular": "hgpo_gym.trainers.models.table:TableModel",
        "features": "hgpo_gym.trainers.models.features:FeaturesModel",
        "cnn": "hgpo_gym.trainers.models.cnn:CnnModel",
    },
    arguments=0,
    entry_points="hgpo_gym.models",
)
"""By `model.kind`: classes whose options are the settings of the group `model`."""
register_model = MODELS.register
