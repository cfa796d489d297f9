"""SecretWord: guess a made-up word from feedback on the letters of earlier guesses.

The words are all sequences of syllables, a consonant and a vowel each, of a small alphabet: `bado`, `keka`. A guess is
free text. The feedback on each letter is `correct` (right place), `misplaced` (the word has it elsewhere) or `absent`.
A letter that occurs once is not reported as misplaced twice. A guess outside the language is refused with the reason
and costs only the step. The observation is the feedback on the last guess: earlier feedback is in the history.

The rules are pure functions on a hashable state, the guesses made (`SecretWord`); `SecretWordEnv` is the Gymnasium
environment around them.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Annotated

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import SUCCESS_REWARD, Split, check_number_of_tasks, in_split
from hgpo_gym.option_checks import AtLeastOne, Range

CONSONANTS = "bdklmnrst"
VOWELS = "aeiou"
LONGEST_QUOTE = 40

Guesses = tuple[str, ...]
"""The state of a game: the valid guesses made, oldest first."""


@dataclass(frozen=True)
class Language:
    """Set of the valid words: `syllables` times one of `consonants` and one of `vowels`."""

    syllables: int
    consonants: str
    vowels: str

    @property
    def places(self) -> tuple[str, ...]:
        """Letters allowed at each place of a word."""
        return (self.consonants, self.vowels) * self.syllables

    def words(self) -> list[str]:
        return ["".join(letters) for letters in product(*self.places)]

    def objection(self, word: str) -> str | None:
        """Return the reason why a word is not valid; None if it is valid."""
        if len(word) != len(self.places):
            return f"it has {len(word)} letters, not {len(self.places)}"
        for number, (letter, allowed) in enumerate(zip(word, self.places, strict=True), start=1):
            if letter not in allowed:
                return f"letter {number} must be one of {' '.join(allowed)}"
        return None


def marks(secret: str, guess: str) -> tuple[str, ...]:
    """Return the feedback on each letter of a guess: `correct`, `misplaced` or `absent`."""
    # Letters at their right place come out first, so that they justify no `misplaced`.
    unmatched = Counter(hidden for hidden, letter in zip(secret, guess, strict=True) if hidden != letter)
    feedback = []
    for hidden, letter in zip(secret, guess, strict=True):
        if hidden == letter:
            feedback.append("correct")
        elif unmatched[letter]:
            unmatched[letter] -= 1
            feedback.append("misplaced")
        else:
            feedback.append("absent")
    return tuple(feedback)


@lru_cache(maxsize=10_000)
def consistent_words(language: Language, secret: str, guesses: Guesses) -> tuple[str, ...]:
    """Return the words that agree with all feedback so far, in alphabetical order of the language."""
    if not guesses:
        return tuple(language.words())
    earlier, last = consistent_words(language, secret, guesses[:-1]), guesses[-1]
    feedback = marks(secret, last)
    return tuple(word for word in earlier if marks(word, last) == feedback)


@dataclass(frozen=True)
class SecretWord:
    """Rules of one game.

    Attributes:
        secret: the word to guess.
        language: the words that there are.
        max_guesses: valid guesses until the game is lost.
    """

    secret: str
    language: Language
    max_guesses: int

    start: Guesses = ()

    @property
    def task(self) -> str:
        consonants, vowels = " ".join(self.language.consonants), " ".join(self.language.vowels)
        return (
            f"Guess the secret word of {len(self.language.places)} letters: {self.language.syllables} times a "
            f"consonant ({consonants}) and a vowel ({vowels}). Write its letters. You have {self.max_guesses} guesses."
        )

    def is_won(self, guesses: Guesses) -> bool:
        return guesses[-1:] == (self.secret,)

    def is_over(self, guesses: Guesses) -> bool:
        return self.is_won(guesses) or len(guesses) == self.max_guesses

    def observation(self, guesses: Guesses) -> str:
        """Return the feedback on the last guess."""
        if not guesses:
            return "No guess yet."
        feedback = ", ".join(f"{letter} {mark}" for letter, mark in zip(guesses[-1], self._marks(guesses), strict=True))
        lost = self.is_over(guesses) and not self.is_won(guesses)
        return f"{feedback}. No guess is left: the word was {spell(self.secret)}." if lost else feedback

    def _marks(self, guesses: Guesses) -> tuple[str, ...]:
        return marks(self.secret, guesses[-1])

    def possible_words(self, guesses: Guesses) -> tuple[str, ...]:
        """Return the words that agree with all feedback so far; the secret is one of them."""
        return consistent_words(self.language, self.secret, guesses)

    def reward(self, guesses: Guesses) -> float:
        """Return the reward of the last guess."""
        return SUCCESS_REWARD if self.is_won(guesses) else 0.0


def spell(word: str) -> str:
    """Return a word with spaces between its letters, so that every tokenizer sees them."""
    return " ".join(word)


class SecretWordEnv(TextEnv):
    """`hgpo_gym/SecretWord-v0`: reward 10 for the word, else 0. Actions are free text: none are listed.

    Args:
        split: `test` (the words whose letter numbers add up to a multiple of 3), `train` (the others) or `all`.
        syllables: of every word, 1 or more.
        consonants: how many there are, 2 to 9.
        vowels: how many there are, 2 to 5.
        guesses: valid ones until the game is lost.
        expert: put a guess into `info["expert_action"]`, drawn from the words that all answers leave possible.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a value outside these ranges.
    """

    def __init__(
        self,
        *,
        split: Split = "train",
        syllables: AtLeastOne = 2,
        consonants: Annotated[int, Range(2, len(CONSONANTS))] = 4,
        vowels: Annotated[int, Range(2, len(VOWELS))] = 3,
        guesses: AtLeastOne = 5,
        expert: bool = False,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        check_number_of_tasks(
            f"syllables={syllables} with consonants={consonants} and vowels={vowels}", consonants * vowels, syllables
        )
        self.split = split
        self._language = Language(syllables, CONSONANTS[:consonants], VOWELS[:vowels])
        self._max_guesses = guesses
        self._expert = expert
        self.task_ids = tuple(word for word in self._language.words() if in_split(split, self._number(word)))

    def _number(self, word: str) -> int:
        return sum(allowed.index(letter) for letter, allowed in zip(word, self._language.places, strict=True))

    def game(self, task_id: str) -> SecretWord:
        """Return the rules of a task, for exact computations."""
        return SecretWord(task_id, self._language, self._max_guesses)

    def begin_episode(self, task_id: str) -> Turn:
        self._game = self.game(task_id)
        self._guesses: Guesses = self._game.start
        return self._turn()

    def take_action(self, action: str) -> Turn:
        word = "".join(action.lower().split())
        if objection := self._language.objection(word):
            quoted = action if len(action) <= LONGEST_QUOTE else action[:LONGEST_QUOTE] + "..."
            return self._turn(prefix=f"{quoted!r} is not a word here: {objection}. ", action_valid=False)
        self._guesses = (*self._guesses, word)
        return self._turn()

    def save_state(self) -> tuple[SecretWord, Guesses]:
        return self._game, self._guesses

    def load_state(self, state: tuple[SecretWord, Guesses]) -> None:
        self._game, self._guesses = state

    def redraw_expert(self) -> str | None:
        return self._expert_action() if self._expert else None

    def _turn(self, prefix: str = "", action_valid: bool = True) -> Turn:
        return Turn(
            observation=prefix + self._game.observation(self._guesses),
            task=self._game.task,
            reward=self._game.reward(self._guesses),
            terminated=self._game.is_over(self._guesses),
            won=self._game.is_won(self._guesses),
            action_valid=action_valid,
            extras={"expert_action": self._expert_action()} if self._expert else {},
        )

    def _expert_action(self) -> str:
        if self._game.is_over(self._guesses):
            return ""
        possible = self._game.possible_words(self._guesses)
        return spell(possible[int(self.np_random.integers(len(possible)))])
