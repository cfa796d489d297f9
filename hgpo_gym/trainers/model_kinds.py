"""Kinds of models: their settings, how to make the initial policy, and how to load a saved one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from hgpo_gym.registry import Registry

if TYPE_CHECKING:
    from hgpo_gym.policies.base import TrainablePolicy
    from hgpo_gym.progress import Progress


@runtime_checkable
class Model(Protocol):
    """The settings of a kind of model, which also make its policies. `run` has the other
    sections of a run that they may read, see `ModelSections`.

    Attributes:
        is_language_model: True if its weights are those of a language model, with a tokenizer.
        writes_text: True if its responses are texts of tokens; False if it chooses among admissible actions.
        has_states: True if a critic can read its states.
        threads: CPU threads of torch; None leaves the choice to torch.
        imitates: True if `warmstart.source=auto` means that the model imitates episodes before training. Weights made
            from scratch do; given weights do not.
    """

    is_language_model: ClassVar[bool]
    writes_text: ClassVar[bool]
    has_states: ClassVar[bool]

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


def is_language_model(kind: Any) -> bool:
    """Return True if this value of `model.kind` is a kind of language model."""
    return kind in MODELS and bool(getattr(MODELS[kind], "is_language_model", False))
