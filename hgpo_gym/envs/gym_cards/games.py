"""Base of the games, and NumberLine."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hgpo_gym.envs.splits import SUCCESS_REWARD


@dataclass(frozen=True, kw_only=True)
class CardGame(ABC):
    """Rules of one task. A state without admissible actions ends the episode.

    With `original` rewards and refusals are those of the package gym_cards, else only admissible actions do something.
    """

    original: bool

    @property
    @abstractmethod
    def task(self) -> str:
        """The instruction."""

    @property
    @abstractmethod
    def start(self) -> Any:
        """The first state."""

    @abstractmethod
    def observation(self, place: Any) -> str:
        """Return the text of a state."""

    @abstractmethod
    def admissible_actions(self, place: Any) -> tuple[str, ...]:
        """Return the actions of a state; none at the end."""

    @abstractmethod
    def outcomes(self, place: Any, action: str) -> Mapping[Any, float]:
        """Return the probability of each state after an admissible action."""

    @abstractmethod
    def original_reward(self, place: Any) -> float:
        """Return what the package gym_cards pays for arriving at a state."""

    def reward(self, place: Any) -> float:
        """Return the reward for arriving at a state: the original's, or that of success."""
        return self.original_reward(place) if self.original else SUCCESS_REWARD * self.is_won(place)

    @abstractmethod
    def is_won(self, place: Any) -> bool:
        """Return whether a state is a success."""

    @abstractmethod
    def is_milestone(self, place: Any) -> bool:
        """Return whether the action that led to a state was a step towards success."""

    @abstractmethod
    def expert_action(self, place: Any) -> str:
        """Return the best action of a state that is not an end; an empty text if success is out of reach."""

    @abstractmethod
    def describe(self, place: Any, action: str) -> str:
        """Return what an admissible action of a state stands for."""


class LinePosition(NamedTuple):
    """The current number, and the one before the last action."""

    number: int
    previous: int


@dataclass(frozen=True, kw_only=True)
class NumberLine(CardGame):
    """Rules: move the current number to the target, one up or down at a time."""

    current: int
    target: int
    last: int

    @property
    def task(self) -> str:
        return f"Move the current number to the target number. Numbers go from 0 to {self.last}."

    @property
    def start(self) -> LinePosition:
        return LinePosition(self.current, self.current)

    def observation(self, place: LinePosition) -> str:
        return f"Target number: {self.target}. Current number: {place.number}"

    def admissible_actions(self, place: LinePosition) -> tuple[str, ...]:
        if self.is_won(place):
            return ()
        if self.original:
            return ("-", "+")
        return ("-",) * (place.number > 0) + ("+",) * (place.number < self.last)

    def outcomes(self, place: LinePosition, action: str) -> Mapping[Hashable, float]:
        after = place.number + (1 if action == "+" else -1)
        return {LinePosition(min(max(after, 0), self.last), place.number): 1.0}

    def original_reward(self, place: LinePosition) -> float:
        if self.is_won(place):
            return 1.0
        return 0.0 if self.is_milestone(place) else -1.0

    def is_won(self, place: LinePosition) -> bool:
        return place.number == self.target

    def is_milestone(self, place: LinePosition) -> bool:
        return abs(place.number - self.target) < abs(place.previous - self.target)

    def expert_action(self, place: LinePosition) -> str:
        return "+" if place.number < self.target else "-"

    def describe(self, place: LinePosition, action: str) -> str:  # noqa: ARG002 - of CardGame
        return "one up" if action == "+" else "one down"
