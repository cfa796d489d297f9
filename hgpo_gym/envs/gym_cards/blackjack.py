"""Blackjack with an infinite deck: probabilities of what cards bring, and the best play by value iteration.

A draw takes each of 13 ranks alike; 10, J, Q and K count 10 and are shown as J, Q or K. The dealer draws up to 17.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from hgpo_gym.envs.gym_cards.games import CardGame

STAND, HIT = "stand", "hit"
DEALER_STANDS = 17
LIMIT = 21
FACES = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "J", "Q", "K")
COUNTS = {face: 10 if face in "JQK" else 1 if face == "A" else int(face) for face in FACES}
CHANCE = {face: 4 / 39 if face in "JQK" else 1 / 13 for face in FACES}
"""Probability of each face: a ten comes in 4 of 13 draws, and is shown as one of three faces."""

Result = Literal["", "win", "draw", "loss"]
ORIGINAL_REWARD = {"": 0.0, "win": 1.0, "draw": 0.0, "loss": -1.0}


class Total(NamedTuple):
    """Value of a hand with its aces as 1, and whether it has an ace that could count 11."""

    hard: int
    ace: bool

    @property
    def score(self) -> int:
        return self.hard + 10 if self.ace and self.hard + 10 <= LIMIT else self.hard

    def plus(self, face: str) -> "Total":
        return Total(self.hard + COUNTS[face], self.ace or face == "A")

    @classmethod
    def of(cls, faces: Sequence[str]) -> "Total":
        return cls(sum(COUNTS[face] for face in faces), "A" in faces)


@lru_cache(maxsize=10_000)
def dealer_scores(total: Total) -> Mapping[int, float]:
    """Return the probability of each final score of the dealer, 0 for more than 21."""
    if total.score >= DEALER_STANDS:
        return {total.score if total.score <= LIMIT else 0: 1.0}
    scores: dict[int, float] = {}
    for face, chance in CHANCE.items():
        for score, probability in dealer_scores(total.plus(face)).items():
            scores[score] = scores.get(score, 0.0) + chance * probability
    return scores


@lru_cache(maxsize=10_000)
def stand_results(total: Total, dealer: str) -> Mapping[Result, float]:
    """Return the probability of each result for a player who stands on a score of at most 21."""
    results: dict[Result, float] = {"win": 0.0, "draw": 0.0, "loss": 0.0}
    for score, probability in dealer_scores(Total.of(dealer)).items():
        result: Result = "win" if total.score > score else "draw" if total.score == score else "loss"
        results[result] += probability
    return {result: probability for result, probability in results.items() if probability}


@lru_cache(maxsize=10_000)
def action_values(total: Total, dealer: str, draw: float, loss: float) -> tuple[float, float]:
    """Return the expected reward of standing and of hitting, if play is the best afterwards. A win is worth 1.

    Exact up to rounding: every hit raises `total.hard`, so one pass over the totals is the whole value iteration.
    """
    worth = {"win": 1.0, "draw": draw, "loss": loss}
    stand = sum(probability * worth[result] for result, probability in stand_results(total, dealer).items())
    hit = 0.0
    for face, chance in CHANCE.items():
        after = total.plus(face)
        hit += chance * (loss if after.hard > LIMIT else max(action_values(after, dealer, draw, loss)))
    return stand, hit


class Hand(NamedTuple):
    """State: the faces of the player's cards, and the result once there is one."""

    faces: tuple[str, ...]
    result: Result = ""


@dataclass(frozen=True, kw_only=True)
class Blackjack(CardGame):
    """Rules of one deal: the dealer's open card, and the player's first two."""

    dealer: str
    faces: tuple[str, ...]

    @property
    def task(self) -> str:
        return (
            "Come closer to 21 than the dealer, and not above it. J, Q and K count 10, A counts 11 or 1. The dealer "
            "draws up to 17."
        )

    @property
    def start(self) -> Hand:
        return Hand(self.faces)

    def observation(self, place: Hand) -> str:
        return f"Dealer's card: {self.dealer}. Player's cards: {', '.join(place.faces)}."

    def admissible_actions(self, place: Hand) -> tuple[str, ...]:
        return () if place.result else (STAND, HIT)

    def outcomes(self, place: Hand, action: str) -> Mapping[Hashable, float]:
        total = Total.of(place.faces)
        if action == STAND:
            return {Hand(place.faces, result): chance for result, chance in stand_results(total, self.dealer).items()}
        return {
            Hand((*place.faces, face), "loss" if total.hard + COUNTS[face] > LIMIT else ""): chance
            for face, chance in CHANCE.items()
        }

    def original_reward(self, place: Hand) -> float:
        return ORIGINAL_REWARD[place.result]

    def is_won(self, place: Hand) -> bool:
        return place.result == "win"

    def is_milestone(self, place: Hand) -> bool:  # noqa: ARG002 - of the other games
        return False

    def expert_action(self, place: Hand) -> str:
        """Return the action of the highest value: basic strategy, or, if only wins pay, the play that wins most."""
        if place.result:
            return ""
        stand, hit = self.values(place)
        return HIT if hit > stand else STAND

    def values(self, place: Hand) -> tuple[float, float]:
        """Return the value of standing and of hitting under the best play, with 1 for a win."""
        return action_values(Total.of(place.faces), self.dealer, 0.0, -1.0 if self.original else 0.0)

    def describe(self, place: Hand, action: str) -> str:
        total = Total.of(place.faces)
        counts = f"{'soft ' * (total.score > total.hard)}{total.score} against {self.dealer}"
        return f"{'take no more cards' if action == STAND else 'take another card'}, {counts}"
