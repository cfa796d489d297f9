"""Learner: all that the run loop knows of what it trains."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hgpo_gym.advantages import StepBatch
from hgpo_gym.policies.base import Policy
from hgpo_gym.rollouts.rollout import FailedEpisode, Rollout
from hgpo_gym.runs.checkpoints import Saving


class Learned(NamedTuple):
    """What an iteration gave: its metrics, the rollout that it learned from, where that is kept, and what credit
    assignment saw of it, where that was something else, and the attempts at an episode whose environment failed.

    The metrics have `success`, `episode_return`, `episode_length`, `valid_action_rate`, `steps` (environment steps
    played), and `seconds_rollout`, `seconds_advantage` and `seconds_update`.
    """

    metrics: dict[str, Any]
    rollout: Rollout | None
    batch: StepBatch | None = None
    failures: tuple[FailedEpisode, ...] = ()


class Learner(Protocol):
    """What a run trains.

    It is made without effort. Then comes `start` or `load`, then `begin`, then iterations of `collect` and `learn`; in
    between `saving` and evaluations. All randomness is a function of seed and iteration, so that no state of random
    generators has to be kept.

    Attributes:
        policy: who acts; there after `start` or `load`.
        packages: the distributions whose versions matter, beside those that every run records.
    """

    policy: Policy
    packages: tuple[str, ...]

    def check(self) -> None:
        """Raise ValueError where there can be no training by these settings. Asked before anything is written, and not
        where a policy is only evaluated."""

    def start(self) -> None:
        """Make the policy that training starts from. In several processes only the main one is asked."""

    def load(self, checkpoint: Path) -> None:
        """Take the policy of a checkpoint. Raises FileNotFoundError if it holds none of this kind."""

    def begin(self, checkpoint: Path, initial: Callable[[], Path], state: dict[str, Any]) -> None:
        """Make ready to train from a checkpoint, whose policy is loaded. All processes take part.

        Args:
            checkpoint: as `saving` wrote it.
            initial: gives the checkpoint that the run began with, once it is sound.
            state: what `state` returned then; empty at the beginning.
        """

    def rollout_weights(self) -> AbstractContextManager[Any]:
        """Inside, the policy can answer. All processes take part."""

    def collect(self, iteration: int) -> Any:
        """The experience of an iteration, from 0; Ctrl-C may break it off."""

    def learn(self, iteration: int, collected: Any, seconds: float) -> Learned:
        """Learn from what `collect` gave in that time; Ctrl-C waits for it.

        Raises:
            NonFiniteError: a number is infinite or none; the policy is no longer to be used.
        """

    def saving(self) -> Saving:
        """What writes the present state. All processes take part; the main one writes."""

    def state(self) -> dict[str, Any]:
        """What else `begin` needs, as JSON."""

    def close(self) -> None:
        """Let go of environments and engines."""
