"""Games that change what a process shares play in turns, whatever their kind."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import hgpo_gym.envs
from hgpo_gym.client import RemoteTextEnv
from hgpo_gym.envs.making import make
from hgpo_gym.envs.turns import ONE_AT_A_TIME
from tests.support.serving import ServerProcess

ALFWORLD, TEXTWORLD, TEXTARENA = (f"hgpo_gym/{name}-v0" for name in ("ALFWorld", "TextWorld", "TextArena"))


def can_begin():
    """Return True if a game can begin."""
    if free := ONE_AT_A_TIME.acquire(blocking=False):
        ONE_AT_A_TIME.release()
    return free


def test_while_one_game_works_none_of_another_kind_can_begin(alfworld_data, textworld_games, monkeypatch):
    """They have generators and parsers in common: ALFWorld's expert could draw from the seed of a textarena game."""
    textarena = make(TEXTARENA)
    engine = {"engine": "textworld", "expert": True, "expert_policy": "hand_coded"}
    alfworld = make(ALFWORLD, data=alfworld_data, split="valid_seen", **engine)
    textworld = make(TEXTWORLD, games=textworld_games)
    textworld.reset(seed=0)
    free = {}

    def watch(kind, owner, name):
        function = getattr(owner, name)

        def watched(*arguments, **options):
            with ThreadPoolExecutor(1) as other:
                free.setdefault(kind, []).append(other.submit(can_begin).result())
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    watch("textarena", type(textarena.unwrapped._game), "reset")
    watch("textarena", type(textarena.unwrapped._game), "step")
    watch("alfworld", hgpo_gym.envs.alfworld.textworld_engine.HandCodedTWAgent, "act")
    watch("textworld", type(textworld.unwrapped._game), "reset")
    watch("textworld", type(textworld.unwrapped._game), "step")
    for env in (textarena, alfworld, textworld):
        _, info = env.reset(seed=1)
        env.step(info["admissible_actions"][0] if info["admissible_actions"] else "[1 2 3 4]")
    assert free == {"textarena": [False, False], "alfworld": [False], "textworld": [False, False]}
    assert can_begin()


@pytest.mark.slow
def test_sessions_of_a_server_that_reset_at_once_each_get_their_game(alfworld_data):
    """Two resets at once failed with engine=textworld, and all after them."""

    def play(env, number):
        output = [env.reset(seed=number)[0]]
        return [*output, env.step("look")[0], env.step("inventory")[0]]

    options = {"data": str(alfworld_data), "split": "valid_seen", "engine": "textworld"}
    numbers = range(2)
    alone = [play(make(ALFWORLD, **options), number) for number in numbers]
    arguments = [f"{name}={value}" for name, value in options.items()]
    with ServerProcess("--env", ALFWORLD, *arguments) as server, ExitStack() as open_sessions:
        sessions = [RemoteTextEnv(server.url, ALFWORLD) for _ in numbers]
        for session in sessions:
            open_sessions.callback(session.close)
        with ThreadPoolExecutor(len(sessions)) as threads:
            assert list(threads.map(play, sessions, numbers)) == alone
