"""TextArenaEnv: the single-player games of textarena."""

import copy
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np

from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import check_number_of_tasks, check_split, in_split
from hgpo_gym.envs.turns import ONE_AT_A_TIME
from hgpo_gym.suggest import unknown_name

try:
    import textarena
    from textarena.core import ObservationType
    from textarena.envs.registration import ENV_REGISTRY
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'textarena\'s games need the package textarena ({error}): pip install "hgpo_gym[textarena]"', name=error.name
    ) from error

LONGEST_MOVE = 1000
"""Characters of a move. Games look for brackets by expressions that take the square of its length."""
RAW = "-raw"
"""The ending of ids whose observations are messages, not one text with all that was said."""


class TextArenaEnv(TextEnv):
    """`hgpo_gym/TextArena-v0`: a single-player game of textarena. Actions are free text, as the task asks for it.

    A task id is the game and a seed; small games begin alike under several seeds. An action without brackets gets them.
    A move that is refused changes nothing, however often; in textarena itself the second one loses the game. The same
    holds of one that the game fails at, or that is longer than `LONGEST_MOVE`. The reward is the game's own, at its
    end: 1 if it is solved, less for a part.

    Args:
        game: an id of textarena, such as `Mastermind-v0`.
        split: `test` (every third seed), `train` (the others) or `all`.
        tasks: how many seeds there are, both splits together.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a game or a split that does not exist, a game for several players, or one that cannot be made here.
    """

    def __init__(
        self,
        *,
        game: str = "Mastermind-v0",
        split: str = "train",
        tasks: int = 150,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        check_split(split)
        if game + RAW not in ENV_REGISTRY:
            games = [id for id in ENV_REGISTRY if id + RAW in ENV_REGISTRY]
            raise ValueError(unknown_name("game of textarena", game, games))
        if tasks < 3:
            raise ValueError(f"tasks={tasks}: take at least 3, so that each split has one.")
        check_number_of_tasks(f"tasks={tasks}", tasks)
        self.split, self.texts_key = split, f"textarena {version('textarena')}"
        self._seeds = {f"{game} {seed}": seed for seed in range(tasks) if in_split(split, seed + 1)}
        self.task_ids = tuple(self._seeds)
        with _chance_from(0):
            try:
                self._game = textarena.make(game + RAW)
                self._game.reset(num_players=1, seed=0)
            except AssertionError as error:
                raise ValueError(f"game={game}: only games for one player can be played. ({error})") from error
            except (LookupError, OSError, ImportError, SyntaxError) as error:  # word lists and the like
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise ValueError(
                    f"game={game} cannot be made here, choose another, or get what it needs. {reason}"
                ) from error
        if (players := self._game.state.num_players) != 1:  # whatever it was asked for
            raise ValueError(f"game={game}: only games for one player can be played, not for {players}.")

    def begin_episode(self, task_id: str) -> Turn:
        seed = self._seeds[task_id]
        with _chance_from(seed):
            self._game.reset(num_players=1, seed=seed)
        self._game.state.error_allowance = math.inf
        messages = self._messages()
        task = "\n".join(text for text, kind in messages if kind is ObservationType.PROMPT)
        shown = "\n".join(text for text, kind in messages if kind is not ObservationType.PROMPT)
        return Turn(shown or "It is your turn.", task=task)

    def take_action(self, action: str) -> Turn:
        seed = int(self.np_random.integers(2**32))
        if len(action) > LONGEST_MOVE:
            return Turn(f"A move has at most {LONGEST_MOVE:,} characters.", action_valid=False)
        before = copy.deepcopy(self._game)
        try:
            with _chance_from(seed):
                done, _ = self._game.step(action if "[" in action else f"[{action}]")
        except Exception:  # noqa: BLE001 - whatever a game of others raises at a move that it does not expect
            self._game = before
            return Turn("The game cannot read that.", action_valid=False)
        reward = 0.0
        messages = [text for text, _ in self._messages()]
        if done:
            rewards, infos = self._game.close()
            reward = float(rewards[0])
            messages.append(str(infos[0].get("reason", "")))
        if not done and self._game.state.error_count and not "".join(messages):
            messages = ["That is not a move."]
        return Turn(
            "\n".join(messages).strip(),
            reward=reward,
            terminated=bool(done),
            won=bool(done) and reward >= 1,
            action_valid=self._game.state.error_count == 0,
        )

    def save_state(self) -> Any:
        return copy.deepcopy(self._game)

    def load_state(self, state: Any) -> None:
        self._game = copy.deepcopy(state)

    def _messages(self) -> list[tuple[str, ObservationType]]:
        """What the game has said since the last time, stripped; not what the player said."""
        _, messages = self._game.get_observation()
        return [
            (text.strip(), kind)
            for _, text, kind in messages
            if kind is not ObservationType.PLAYER_ACTION and isinstance(text, str)  # some refuse with a number
        ]


@contextmanager
def _chance_from(seed: int) -> Iterator[None]:
    """textarena draws from the global generators: seed them for a moment, and leave them as they were. One thread at a
    time, or one game would draw another's chances."""
    with ONE_AT_A_TIME:
        before, numpy_before = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpy_before)
