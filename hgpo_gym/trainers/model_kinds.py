"""Kinds of models: their settings, how to make the initial policy, and how to load a saved one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hgpo_gym.registry import Registry

if TYPE_CHECKING:
    from hgpo_gym.policies.base import TrainablePolicy
    from hgpo_gym.progress import Progress


@runtime_checkable
class Model(Protocol):
    """The settings of a kind of model, which also make its policies. `run` is the `RunSettings` that contains them.

    Attributes:
        threads: CPU threads of torch; None leaves the choice to torch.
        imitates: True if `warmstart.source=auto` means that the model imitates episodes before training. Weights made
            from scratch do; given weights do not.
    """

    threads: int | None

    @property
    def imitates(self) -> bool: ...

    def check(self, run: Any, processes: int) -> None:
        """Raise ValueError if these settings conflict with the run's settings or with the number of processes."""

    def initial(self, run: Any, progress: "Progress") -> "TrainablePolicy":
        """Return the policy that training starts from."""

    def load(self, run: Any, folder: Path) -> "TrainablePolicy":
        """Return the policy that was saved in `folder`. Raises FileNotFoundError if it holds none of this kind."""


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
"""Classes by `model.kind`. Their options are the settings of the group `model`."""
register_model = MODELS.register
