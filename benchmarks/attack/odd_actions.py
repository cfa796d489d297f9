"""Odd actions, thousands an environment: admissible ones, parts of them, Unicode, lone surrogates, a megabyte. None
raises, and a snapshot restores what they changed."""

import random
from collections.abc import Sequence
from typing import Any

from hgpo_gym.envs import make
from hgpo_gym.envs.base import Snapshot, TextEnv

EASY = {"simplifications": "easy", "tasks": ["boil", "grow-fruit", "power-component", "find-animal"]}
ENVIRONMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("BabyAI-v0", {"level": "UnlockPickup"}),
    ("TextCraft-v0", {"recipes": "generated"}),
    ("TextCraft-v0", {"recipes": "generated", "actions": "free"}),
    ("GymCards-v0", {}),
    ("GymCards-v0", {"reward": "original"}),
    ("GymCards-v0", {"game": "Blackjack"}),
    ("Search-v0", {"passages": 200, "questions": 60}),
    ("ScienceWorld-v0", EASY | {"actions": "seen"}),
    ("ScienceWorld-v0", EASY | {"actions": "free"}),
)
ODD = (
    *("", " ", "\x00", "\ud800", "\udfff\ud83d", "🦊" * 50, "寿司", "e\u0301", "\u202e", "(((", "]", "9" * 500, "-1"),
    *("%s{}\\", "1/0", "search[", "<search>", "answer[\ud800]", "craft 1 x using 1 y", "get 0 x", "\n", "look\nlook"),
)
LONG = ("x" * 2**20, "\ud800" * 2**20, "search[" + "y " * 2**19 + "]", "get " + "9" * 2**20 + " x", "(" * 2**20)
LONG_EVERY = 4_000
FREE = ("look around", "open door", "wait", "focus on door")
"""Actions where none is listed."""
ADMISSIBLE_SHARE = 0.1
EPISODE = 200
"""Most actions between a snapshot and its restoration."""


def main(times: int, seed: int, only: Sequence[str] = ()) -> list[tuple[str, int, int]]:
    """Return a row for each environment: its name, the actions, and how many raised or were not undone.

    Args:
        times: actions an environment.
        seed: of what is drawn.
        only: parts of the names of the environments; none is all.
    """
    rows = []
    for id, options in ENVIRONMENTS:
        name = " ".join([id, *map(str, (options[key] for key in ("actions", "reward", "game") if key in options))])
        if not only or any(part in name for part in only):
            env = make(f"hgpo_gym/{id}", max_episode_steps=10**6, **options).unwrapped
            assert isinstance(env, TextEnv)
            rows.append((f"odd actions in {name}", times, _attack(env, times, random.Random(seed))))
            env.close()
            print(*rows[-1], flush=True)
    return rows


def _attack(env: TextEnv, times: int, choice: random.Random) -> int:
    wrong = tried = 0
    while tried < times:
        observation, info = env.reset(seed=choice.randrange(2**31))
        snapshot, before = env.snapshot(), (observation, info["admissible_actions"])
        for tried in range(tried + 1, min(tried + EPISODE, times) + 1):  # noqa: B020 - goes on from the last
            action = _action(info["admissible_actions"] or FREE, tried, choice)
            try:
                _, _, terminated, _, info = env.step(action)
            except Exception as error:  # noqa: BLE001 - each is a finding
                print(f"{action[:60]!r} raised {error!r:.300}", flush=True)
                wrong, terminated = wrong + 1, True
            if terminated:
                break
        wrong += _differs(env, snapshot, before)
    return wrong


def _differs(env: TextEnv, snapshot: Snapshot, before: tuple[str, Sequence[str]]) -> bool:
    """Return whether the snapshot does not restore the texts, or the next turn is another the second time."""
    turns = []
    for _ in range(2):
        observation, info = env.restore(snapshot)
        if (observation, info["admissible_actions"]) != before:
            return True
        turns.append(env.step(next(iter(info["admissible_actions"] or FREE))))
    return turns[0] != turns[1]


def _action(listed: Sequence[str], tried: int, choice: random.Random) -> str:
    """Return an action. Texts of a megabyte are rare, so that it takes minutes."""
    if tried % LONG_EVERY == 1:
        return LONG[tried // LONG_EVERY % len(LONG)]
    if choice.random() < ADMISSIBLE_SHARE:
        return choice.choice(listed)
    words = choice.choice(listed).split()
    return choice.choice(("", " ")).join(choice.choices((*words, *ODD), k=choice.randrange(1, 6)))
