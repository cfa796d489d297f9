"""Learner: the interface between the run loop and a training algorithm."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hgpo_gym.advantages import StepBatch
from hgpo_gym.policies.base import Policy
from hgpo_gym.rollouts.rollout import FailedEpisode, Rollout
from hgpo_gym.runs.checkpoints import Saving


class Learned(NamedTuple):
    """The result of an iteration.

    It holds the metrics, and the rollout that was trained on, if that is saved. It holds the batch that credit
    assignment used, if it differs, the failed attempts at episodes, and what `begin` needs of the iteration, as JSON.

    The metrics include `success`, `episode_return`, `episode_length`, `valid_action_rate` and `steps` (environment
    steps). They also include `seconds_rollout`, `seconds_advantage` and `seconds_update`.
    """

    metrics: dict[str, Any]
    rollout: Rollout | None
    batch: StepBatch | None = None
    failures: tuple[FailedEpisode, ...] = ()
    outcomes: Sequence[Any] = ()


class Learner(Protocol):
    """The training algorithm of a run.

    The constructor is cheap. Then comes `start` or `load`, then `begin`, then iterations of `collect` and `learn`,
    with `saving` and evaluations in between. All randomness is a function of seed and iteration, so no generator
    state is saved.

    Attributes:
        policy: the acting policy; set by `start` or `load`.
        packages: distributions whose versions matter, in addition to those that every run records.
    """

    policy: Policy
    packages: tuple[str, ...]

    def check(self) -> None:
        """Raise ValueError if these settings cannot train. Called before anything is written, but not for an
        evaluation alone."""

    def start(self) -> None:
        """Make the policy that training starts from. With several processes only the main one calls this."""

    def load(self, checkpoint: Path) -> None:
        """Load the policy of a checkpoint. Raises FileNotFoundError if it holds none of this kind."""

    def begin(self, checkpoint: Path, initial: Callable[[], Path], state: dict[str, Any]) -> None:
        """Prepare to train from a checkpoint whose policy is loaded. All processes take part.

        Args:
            checkpoint: a checkpoint that `saving` wrote.
            initial: returns the first checkpoint of the run, after verifying it.
            state: the result of `state` at that checkpoint, with the `outcomes` of every iteration until there.
        """

    def rollout_weights(self) -> AbstractContextManager[Any]:
        """Return a context in which the policy can generate. All processes take part."""

    def collect(self, iteration: int) -> Any:
        """Collect the experience of an iteration, counted from 0. Ctrl-C may interrupt it."""

    def learn(self, iteration: int, collected: Any, seconds: float) -> Learned:
        """Learn from the result of `collect`, which took `seconds`. Ctrl-C waits for it.

        Raises:
            NonFiniteError: a number is infinite or NaN; the policy must no longer be used.
        """

    def saving(self) -> Saving:
        """Return a writer of the present state. All processes take part; the main one writes."""

    def state(self) -> dict[str, Any]:
        """Return the other state that `begin` needs, as JSON. It does not grow with the iterations."""

    def close(self) -> None:
        """Close environments and engines."""
