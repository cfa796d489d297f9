"""GymCardsEnv: the Gymnasium environment around the four games.

Rules, texts and rewards are those of the package gym_cards (Zhai et al., 2024, arXiv:2405.10292), whose observations
are images: texts are those of its text wrapper.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, combinations_with_replacement, permutations, product
from typing import Any, Literal

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.gym_cards.blackjack import FACES, Blackjack
from hgpo_gym.envs.gym_cards.formulas import OPERATORS, Arithmetic, can_make
from hgpo_gym.envs.gym_cards.games import CardGame, NumberLine
from hgpo_gym.envs.gym_cards.points import Points
from hgpo_gym.envs.splits import Split, hashed, in_split

Game = Literal["NumberLine", "EZPoints", "Points24", "Blackjack"]
Reward = Literal["success", "original"]
LAST = 5
"""The largest number of NumberLine."""
RANKS = {1: "A", 10: "TJQK"}
"""Faces of a number, where it is not the number itself."""
POINTS_24, EZ_POINTS = (*OPERATORS, "(", ")"), ("+", "*")
LONGEST = {"Points24": 20, "EZPoints": 5}
"""Most tokens of a formula in the original."""


class GymCardsEnv(TextEnv):
    """`hgpo_gym/GymCards-v0`: NumberLine, EZPoints, Points24 or Blackjack, as text.

    A task id is the beginning of a game: `0-3` (current and target number), `3-3-8-8` (the numbers of a hand, whose
    order and suits come from a hash of the id), `J-5-K` (the dealer's open card and the player's two).

    Args:
        game: `NumberLine`, `EZPoints`, `Points24` or `Blackjack`.
        split: `test` (about a third of the tasks, by a hash of the id), `train` (the others) or `all`.
        reward: `success`, 10 for a game that is won, else 0; or `original`, the rewards of gym_cards, where every token
            may be written, and a number that is not available costs 1.
        arithmetic: of formulas. `exact`, or `original`: floats, in which 8/(3-8/3) is not 24.
        solvable: of Points24, only hands that can make 24.
        expert: put into `info["expert_action"]` the way to the target, the next token of a shortest formula (empty
            where none is possible), or the best play of Blackjack.
        milestones: put into `info["milestone"]` whether the action came nearer (NumberLine), or wrote a number after
            which the value can still be reached. Blackjack has none.
        describe_actions: put the meaning of each admissible action into `info["action_descriptions"]`: of a token, the
            value of the innermost parentheses with it, the numbers left, and, if that is one or none, the positive
            whole values that the formula can end at; in Blackjack, the player's score and the dealer's card.
        render_mode: `ansi` or None.

    Raises:
        ValueError: an option that does not exist.
    """

    def __init__(
        self,
        *,
        game: Game = "Points24",
        split: Split = "train",
        reward: Reward = "success",
        arithmetic: Arithmetic = "exact",
        solvable: bool = True,
        expert: bool = False,
        milestones: bool = False,
        describe_actions: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        self.split = split
        self._name, self._original, self._arithmetic = game, reward == "original", arithmetic
        self._expert, self._milestones, self._describes = expert, milestones, describe_actions
        self._has_extras = expert or milestones or describe_actions
        task_ids, self._rules = GAMES[game]
        if game == "Points24" and solvable:
            task_ids = _solvable_hands
        self.task_ids = tuple(task for task in task_ids() if in_split(split, hashed(task)))

    def rules(self, task_id: str) -> CardGame:
        """Return the rules of a task as pure functions of a hashable state."""
        return self._rules(task_id, self._original, self._arithmetic)

    def dynamics(self, task_id: str) -> CardGame | None:
        """Return the rules of a task, for exact computations; None if it has too many states, as with the original's
        free order of tokens."""
        return None if self._original and "Points" in self._name else self.rules(task_id)

    def begin_episode(self, task_id: str) -> Turn:
        self._game = self.rules(task_id)
        self._place = self._game.start
        return self._turn()

    def take_action(self, action: str) -> Turn:
        if action not in self._actions:
            return self._turn(prefix="That is not possible here. ", action_valid=False)
        outcomes = self._game.outcomes(self._place, action)
        # Only chance draws a number, so that in the other games nothing depends on the seed.
        self._place = _draw(outcomes, float(self.np_random.random())) if len(outcomes) > 1 else next(iter(outcomes))
        return self._turn(has_acted=True)

    def save_state(self) -> tuple[CardGame, Any]:
        return self._game, self._place

    def load_state(self, state: tuple[CardGame, Any]) -> None:
        self._game, self._place = state
        self._actions = self._game.admissible_actions(self._place)

    def _turn(self, prefix: str = "", action_valid: bool = True, has_acted: bool = False) -> Turn:
        game, place = self._game, self._place
        if action_valid:
            self._actions = game.admissible_actions(place)
        actions, won = self._actions, game.is_won(place)
        return Turn(
            observation=prefix + game.observation(place),
            task=game.task,
            admissible_actions=actions,
            reward=game.reward(place) if has_acted else 0.0,
            terminated=not actions,
            won=won,
            action_valid=action_valid,
            extras=self._extras(actions, has_acted) if self._has_extras else {},
        )

    def _extras(self, actions: Sequence[str], has_acted: bool) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if self._expert:
            extras["expert_action"] = self._game.expert_action(self._place) if actions else ""
        if self._milestones:
            extras["milestone"] = has_acted and self._game.is_milestone(self._place)
        if self._describes:
            extras["action_descriptions"] = tuple(self._game.describe(self._place, action) for action in actions)
        return extras


def _draw(outcomes: Mapping[Any, float], number: float) -> Any:
    """Return the outcome at a number from 0 to 1 of the cumulative probability."""
    ends = accumulate(outcomes.values())
    # The sum may be below 1 by rounding: the last outcome is the default.
    return next((place for place, end in zip(outcomes, ends, strict=True) if number < end), [*outcomes][-1])


def _number_lines() -> list[str]:
    return [f"{current}-{target}" for current, target in permutations(range(LAST + 1), 2)]


def _number_line(task_id: str, original: bool, _: Arithmetic) -> NumberLine:
    current, target = map(int, task_id.split("-"))
    return NumberLine(current=current, target=target, last=LAST, original=original)


@cache
def _points24_hands() -> list[str]:
    return ["-".join(map(str, hand)) for hand in combinations_with_replacement(range(1, 11), 4)]


@cache
def _solvable_hands() -> list[str]:
    return [hand for hand in _points24_hands() if can_make(_numbers(hand), 24)]


@cache
def _ez_points_hands() -> list[str]:
    pairs = combinations_with_replacement(range(1, 11), 2)
    # The original never deals an ace: its second card is 12 divided by, or less, the first.
    return [f"{a}-{b}" for a, b in pairs if 12 in (a + b, a * b)]


def _numbers(task_id: str) -> tuple[int, ...]:
    return tuple(map(int, task_id.split("-")))


@lru_cache(maxsize=2_000)
def _points(task_id: str, original: bool, arithmetic: Arithmetic) -> Points:
    generator = random.Random(hashed(task_id))
    numbers = list(_numbers(task_id))
    generator.shuffle(numbers)
    cards = tuple(generator.choice("HSDC") + generator.choice(RANKS.get(number, str(number))) for number in numbers)
    is_24 = len(numbers) == 4
    return Points(
        cards=cards,
        numbers=tuple(numbers),
        target=24 if is_24 else 12,
        symbols=POINTS_24 if is_24 else EZ_POINTS,
        most_tokens=LONGEST["Points24" if is_24 else "EZPoints"],
        original=original,
        arithmetic=arithmetic,
    )


def _deals() -> list[str]:
    return ["-".join(faces) for faces in product(FACES, repeat=3)]


def _deal(task_id: str, original: bool, _: Arithmetic) -> Blackjack:
    dealer, *faces = task_id.split("-")
    return Blackjack(dealer=dealer, faces=tuple(faces), original=original)


GAMES: dict[Game, tuple[Callable[[], list[str]], Callable[[str, bool, Arithmetic], CardGame]]] = {
    "NumberLine": (_number_lines, _number_line),
    "EZPoints": (_ez_points_hands, _points),
    "Points24": (_points24_hands, _points),
    "Blackjack": (_deals, _deal),
}
"""The task ids of each game, and the rules of a task."""
