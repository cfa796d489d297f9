"""TextArenaEnv: the single-player games of textarena."""

import copy
import functools
import io
import json
import math
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hgpo_gym.digests import cached_folder
from hgpo_gym.envs.base import TextEnv, Turn
from hgpo_gym.envs.splits import Split, check_number_of_tasks, in_split
from hgpo_gym.envs.turns import ONE_AT_A_TIME
from hgpo_gym.extras import requires_extra
from hgpo_gym.files import cache_dir, content_key, source_digest
from hgpo_gym.option_checks import Range
from hgpo_gym.suggest import unknown_name

with requires_extra("textarena", "TextArenaEnv"):
    import textarena
    from textarena.core import ObservationType
    from textarena.envs.registration import ENV_REGISTRY

LONGEST_MOVE = 1000
"""Maximal number of characters of a move. Games search for brackets by expressions whose time is quadratic in the
length."""
RAW = "-raw"
"""Suffix of ids whose observations are separate messages instead of one text."""
A_MINE = "You hit a mine"
"""Text of a refusal that loses the game: in textarena the second refusal would lose it."""

_A_SET = "what it makes of several moves at once hangs on Python's hash seed"
UNFIT = {
    "Bandit": "it pays the more, the worse the button that is chosen in the end",
    "Crosswords": _A_SET,
    "FifteenPuzzle": "its last move ends in an error",
    "Klondike": "its reward counts cards, so that one card is as good as a solved game",
    "LogicPuzzle": _A_SET,
    "Set": "its reward counts sets, so that one set is as good as all",
}
"""Games of textarena 0.7 that break a promise of an environment, by the beginning of their ids, with the reason."""


class TextArenaEnv(TextEnv):
    """`hgpo_gym/TextArena-v0`: a single-player game of textarena. Actions are free text, as the task asks for it.

    A task id is the game and a seed. If a game begins alike under several seeds, hidden state included, the first one
    is the task. An action without brackets gets them. A refused move changes nothing, however often. The same holds for
    a move that raises an error in the game, or that is longer than `LONGEST_MOVE`. A mine that is hit loses. (In
    textarena itself the second refusal loses any game.) The reward is the game's own, at its end: 1 if it is solved,
    less for a part.

    Args:
        game: an id of textarena, such as `Mastermind-v0`.
        split: `test` (a third, by a hash of how the game begins), `train` (the others) or `all`.
        tasks: how many seeds are looked at, both splits together.
        render_mode: `ansi` or None.

    Raises:
        ValueError: a game or a split that does not exist, an empty split, a game for several players, one of `UNFIT`,
            or one that cannot be made here.
    """

    def __init__(
        self,
        *,
        game: str = "Mastermind-v0",
        split: Split = "train",
        tasks: Annotated[int, Range(3)] = 150,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        if game + RAW not in ENV_REGISTRY:
            games = [id for id in ENV_REGISTRY if id + RAW in ENV_REGISTRY]
            raise ValueError(unknown_name("game of textarena", game, games))
        check_number_of_tasks(f"tasks={tasks}", tasks)
        if reason := UNFIT.get(game.partition("-")[0]):
            raise ValueError(f"game={game} cannot be played here: {reason}. Choose another.")
        self.split, self.texts_key = split, f"textarena {version('textarena')}"
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
        starts = _starts(game, tasks)
        self._seeds = {f"{game} {seed}": seed for start, seed in starts.items() if in_split(split, int(start, 16))}
        if not self._seeds:
            raise ValueError(
                f"The split {split!r} of {game} is empty: {tasks} seeds begin in {len(starts)} way(s). Set split=all."
            )
        self.task_ids = tuple(self._seeds)

    def begin_episode(self, task_id: str) -> Turn:
        _reset(self._game, self._seeds[task_id])
        self._game.state.error_allowance = math.inf
        messages = self._messages()
        task = "\n".join(text for text, kind in messages if kind is ObservationType.PROMPT)
        shown = "\n".join(text for text, kind in messages if kind is not ObservationType.PROMPT)
        return Turn(shown or "It is your turn.", task=task)

    def take_action(self, action: str) -> Turn:
        # Drawn before any return: a refused move uses up the same random numbers.
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
        messages = [text for text, _ in self._messages()]
        if done:
            rewards, infos = self._game.close()
            reward = float(rewards[0])
            messages.append(str(infos[0].get("reason", "")))
            return Turn("\n".join(messages).strip(), reward=reward, terminated=True, won=reward >= 1)
        feedback = "\n".join(messages).strip()
        if not self._game.state.error_count:
            return Turn(feedback)
        if A_MINE in feedback:
            return Turn(feedback, reward=float(self._game._get_percentage_completion()), terminated=True)
        self._game = before  # some games do a part of what they refuse
        return Turn(feedback or "That is not a move.", action_valid=False)

    def save_state(self) -> Any:
        return copy.deepcopy(self._game)

    def load_state(self, state: Any) -> None:
        self._game = copy.deepcopy(state)

    def _messages(self) -> list[tuple[str, ObservationType]]:
        """Return the game's new messages since the last call, stripped, without the player's."""
        _, messages = self._game.get_observation()
        return [
            (text.strip(), kind)
            for _, text, kind in messages
            if kind is not ObservationType.PLAYER_ACTION and isinstance(text, str)  # some refuse with a number
        ]


def _reset(game: Any, seed: int) -> None:
    """Begin an episode without output: some games print their attempts at a start."""
    with _chance_from(seed), redirect_stdout(io.StringIO()):
        game.reset(num_players=1, seed=seed)


@functools.cache
def _starts(game: str, seeds: int) -> dict[str, int]:
    """Return the first seed of each distinct start, by a key of the game's state and its messages. The result is
    stored, as some games take half a second to find a start."""

    def fill(folder: Path) -> None:
        env = textarena.make(game + RAW)
        first_seeds: dict[str, int] = {}
        for seed in range(seeds):
            _reset(env, seed)
            _, messages = env.get_observation()
            first_seeds.setdefault(content_key([_plain(vars(env)), [text for _, text, _ in messages]]), seed)
        (folder / "starts.json").write_text(json.dumps(first_seeds))

    key = content_key([game, seeds, version("textarena"), source_digest(sys.modules[__name__])])
    folder = cached_folder(cache_dir() / "textarena" / key, fill)
    return json.loads((folder / "starts.json").read_text())


def _plain(value: Any) -> Any:
    """Return JSON-like data that is the same in every process. Objects of textarena give their attributes; functions
    and generators give None."""
    if isinstance(value, dict):
        return sorted(([repr(_plain(key)), _plain(item)] for key, item in value.items()), key=repr)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=repr)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value).__module__.startswith("textarena.") and hasattr(value, "__dict__"):
        return _plain(vars(value))
    return None


@contextmanager
def _chance_from(seed: int) -> Iterator[None]:
    """Seed the global generators, which textarena draws from, and restore them afterwards. One thread at a time:
    otherwise one game would draw the numbers of another."""
    with ONE_AT_A_TIME:
        before, numpy_before = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpy_before)
