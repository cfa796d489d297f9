"""check_text_env: every promise of `TextEnv` is a function here or in `checker_tasks`, and its message names the likely
mistake."""

import copy
import math
import random
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from hgpo_gym.envs.base import TextEnv, TurnError
from hgpo_gym.envs.checker_tasks import check_options, check_split, check_task_ids, check_task_order

ODD_ACTIONS = ("", " ", "\n\t\x00\x7f", "no such action", "look " * 500, "häß 寿司 🦊", "\ud800", "{}[]%s\\", "-1")
INFO_TYPES = {"task_id": str, "task_type": str, "task": str, "admissible_actions": tuple, "won": bool}


def check_text_env(env: gymnasium.Env[str, str], *, seed: int = 0, steps: int = 20) -> None:
    """Check that an environment keeps the promises of `TextEnv`, Gymnasium's own among them.

    Args:
        env: as made by `gymnasium.make`, or directly; of one that is made directly it is not checked that others can be
            made like it, here and in another process.
        seed: of the episodes that are played.
        steps: the length of the random walks.

    Raises:
        AssertionError: a promise is broken; the message names it and the likely mistake.
    """
    text_env = env.unwrapped
    assert isinstance(text_env, TextEnv), (
        f"{type(text_env).__name__} must be a subclass of hgpo_gym.TextEnv; hgpo_gym.envs.TextFromDiscrete makes one "
        "of an environment with numbered actions."
    )
    try:
        check_construction(text_env)
        check_task_ids(text_env)
        check_split(text_env)
        check_options(text_env)
        check_info(text_env, seed, steps)
        check_odd_actions(text_env, seed)
        check_determinism(text_env, seed, steps)
        check_end(text_env, seed)
        if text_env.can_snapshot:
            check_snapshot(text_env, seed, steps)
        if text_env.spec is not None:
            check_copies(text_env, seed, steps)
            check_task_order(text_env)
        check_env(text_env, skip_render_check=text_env.render_mode is None)
    except TurnError as error:
        raise AssertionError(str(error)) from error


def check_construction(env: TextEnv) -> None:
    """Check that `TextEnv.__init__` has run, and that the two methods and the list of tasks exist."""
    name = type(env).__name__
    assert hasattr(env, "_last_turn"), f"{name}.__init__ must call super().__init__(render_mode=render_mode)."
    for method in ("begin_episode", "take_action"):
        assert getattr(type(env), method) is not getattr(TextEnv, method), f"{name} lacks the method {method}."
    assert hasattr(env, "task_ids"), f"{name} lacks task_ids: the list of its tasks, set in the class or in __init__."


def check_info(env: TextEnv, seed: int, steps: int) -> None:
    """Check that `info` is complete at every step and does not change later, and that admissible actions are valid."""
    env.action_space.seed(seed)
    _, info = _reset(env, seed=seed)
    recorded: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for _ in range(steps):
        recorded.append((info, copy.deepcopy(info)))
        listed, action = info["admissible_actions"], _act(env, info)
        _, _, terminated, _, info = _step(env, action)
        assert info["action_valid"] or not listed, (
            f"{action!r} was listed in admissible_actions and then called invalid."
        )
        if terminated:
            _, info = _reset(env)
    for info_then, original in recorded:
        changed = [name for name, value in original.items() if info_then[name] != value]
        assert not changed, f"info[{changed[0]!r}] of an earlier step has changed since: put a copy into Turn.extras."


def check_odd_actions(env: TextEnv, seed: int) -> None:
    """Check that no string raises. If actions are listed, any other is invalid, earns nothing and does not end the
    episode."""
    _, info = _reset(env, seed=seed)
    for action in ODD_ACTIONS:
        admissible = info["admissible_actions"]
        _, reward, terminated, _, info = _step(env, action)
        if admissible and action.strip() not in admissible:
            assert not info["action_valid"], f"{action!r} is not in admissible_actions, yet action_valid is True."
            assert info["admissible_actions"] == admissible, f"The inadmissible action {action!r} changed the state."
            effect = reward != 0 or terminated
            assert not effect, f"The inadmissible action {action!r} gave a reward or ended the episode."
        if terminated:
            _, info = _reset(env)


def check_determinism(env: TextEnv, seed: int, steps: int) -> None:
    """Check that the same seed and actions give the same text, and that the global random generators have no effect and
    are not changed.

    Inadmissible actions in between change nothing.
    """
    # The test is about the legacy global generators, so it must touch them.
    random.seed(1)
    np.random.seed(1)
    before = (random.getstate(), repr(np.random.get_state()))
    first = _walk(env, seed, steps)
    assert before == (random.getstate(), repr(np.random.get_state())), (
        "The environment draws from the global random generators: use self.np_random."
    )
    random.seed(2)
    np.random.seed(2)
    _assert_same(
        first,
        _walk(env, seed, steps),
        "Same seed and actions",
        "Draw all randomness from self.np_random, and let begin_episode set the whole state.",
    )
    if all(admissible for _, admissible, _, ended in first if not ended):
        _assert_same(
            first,
            _walk(env, seed, steps, before_step=lambda: _step(env, "no such action")),
            "Inadmissible actions were added to the same ones",
            "Let an action that is not admissible change nothing, not even what is hidden, and draw nothing.",
        )


def check_copies(env: TextEnv, seed: int, steps: int) -> None:
    """Check that another environment, made and stepped beside this one, changes nothing here."""
    expected = _walk(env, seed, steps)
    other_env = gymnasium.make(env.spec, disable_env_checker=True).unwrapped  # type: ignore[arg-type]  # it has a spec
    assert isinstance(other_env, TextEnv)
    _, info = _reset(other_env, seed=seed + 1)

    def play_the_other() -> None:
        nonlocal info
        _, _, terminated, _, info = _step(other_env, _act(other_env, info))
        if terminated:
            _, info = _reset(other_env)

    _assert_same(
        expected,
        _walk(env, seed, steps, before_step=play_the_other),
        "Another environment was played at the same time",
        "Keep state in self, set by begin_episode; what is written in the class or the module is shared by all.",
    )
    other_env.close()


def check_end(env: TextEnv, seed: int) -> None:
    """Check that a step after the end asks for a reset. (Only if a random walk ends.)"""
    env.action_space.seed(seed)
    _, info = _reset(env, seed=seed)
    for _ in range(200):
        if not info["admissible_actions"]:
            return
        _, _, terminated, _, info = _step(env, _act(env, info))
        if terminated:
            try:
                env.step("")
            except ResetNeeded:
                return
            raise AssertionError("step() after the end of an episode must raise gymnasium.error.ResetNeeded.")


def check_snapshot(env: TextEnv, seed: int, steps: int) -> None:
    """Check that the same actions from a snapshot lead to the same texts, however often it is restored."""
    env.action_space.seed(seed)
    _, info = _reset(env, seed=seed)
    for _ in range(steps // 2):
        _, _, terminated, _, info = _step(env, _act(env, info))
        if terminated:
            _, info = _reset(env)
    snapshot = env.snapshot()
    branches = []
    for other_task in (None, env.task_ids[0], env.task_ids[-1]):
        if other_task is not None:
            env.reset(seed=seed + 1, options={"task_id": other_task})
        observation, info = env.restore(snapshot)
        branches.append([(observation, info["task_id"], info["admissible_actions"])])
        env.action_space.seed(seed)
        for _ in range(steps):
            observation, _, terminated, _, info = _step(env, _act(env, info))
            branches[-1].append((observation, info["task_id"], info["admissible_actions"]))
            if terminated:
                break
    for branch in branches[1:]:
        assert branch == branches[0], (
            f"restore(snapshot) led elsewhere the second time, in task {snapshot.task_id!r}: save_state must return a "
            "value that later steps do not change, and load_state must set all of it."
        )


Seen = tuple[str, tuple[str, ...], float, bool]
"""Observation, admissible actions, reward, and whether the episode is over."""


def _walk(env: TextEnv, seed: int, steps: int, before_step: Callable[[], object] = lambda: None) -> list[Seen]:
    """Return a random walk. Its actions are the same for the same seed and the same observations."""
    env.action_space.seed(seed)
    observation, info = _reset(env, seed=seed)
    seen: list[Seen] = [(observation, info["admissible_actions"], 0.0, False)]
    for _ in range(steps):
        before_step()
        observation, reward, terminated, _, info = _step(env, _act(env, info))
        seen.append((observation, info["admissible_actions"], reward, terminated))
        if terminated:
            observation, info = _reset(env)
            seen.append((observation, info["admissible_actions"], 0.0, False))
    return seen


def _assert_same(first: list[Seen], second: list[Seen], what: str, remedy: str) -> None:
    for step, (expected, actual) in enumerate(zip_longest(first, second)):
        assert expected == actual, f"{what}, but step {step} differs: {expected!r} and {actual!r}. {remedy}"


def _act(env: TextEnv, info: dict[str, Any]) -> str:
    """Return a random admissible action, or any text if none are listed."""
    actions = info["admissible_actions"]
    return actions[int(env.action_space.np_random.integers(len(actions)))] if actions else env.action_space.sample()


def _reset(env: TextEnv, seed: int | None = None) -> tuple[str, dict[str, Any]]:
    observation, info = env.reset(seed=seed)
    _check_text(observation, info)
    return observation, info


def _step(env: TextEnv, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
    shown = repr(action if len(action) <= 40 else action[:40] + "...")
    try:
        observation, reward, terminated, truncated, info = env.step(action)
    except TurnError:
        raise
    except Exception as error:  # whatever the environment's code may raise
        listed = action in env._last_turn.admissible_actions
        remedy = (
            "It was listed in admissible_actions."
            if listed
            else "Any string may come: return a Turn for what is not understood, with action_valid=False."
        )
        raise AssertionError(
            f"The action {shown} raised {type(error).__name__}: {str(error).rstrip('.')}. {remedy}"
        ) from error
    _check_text(observation, info)
    assert "action_valid" in info, "info lacks 'action_valid' after a step: write take_action, and leave step as it is."
    assert isinstance(reward, float), f"The reward must be a float, not {type(reward).__name__}."
    assert math.isfinite(reward), f"The reward of {shown} is {reward}."
    assert terminated or not info["won"], "won=True without terminated=True: winning ends the episode."
    assert not truncated, "The environment truncates the episode: leave step limits to max_episode_steps."
    return observation, reward, terminated, truncated, info


def _check_text(observation: str, info: dict[str, Any]) -> None:
    assert isinstance(observation, str), (
        f"The observation is a {type(observation).__name__}, not a str: {observation!r}."
    )
    for name, right in INFO_TYPES.items():
        assert name in info, f"info lacks {name!r}."
        kind = type(info[name]).__name__
        assert isinstance(info[name], right), f"info[{name!r}] is a {kind}, not a {right.__name__}."
    admissible = info["admissible_actions"]
    for action in admissible:
        assert isinstance(action, str), f"admissible_actions must be strings: {action!r}."
        assert action.strip() == action != "", (
            f"The admissible action {action!r} is empty or has white space at its ends: responses are stripped."
        )
    assert len(set(admissible)) == len(admissible), f"admissible_actions has duplicates: {admissible}."
    described = info.get("action_descriptions", ("",) * len(admissible))
    are_texts = isinstance(described, tuple) and all(isinstance(text, str) for text in described)
    assert are_texts, f"action_descriptions must be a tuple of texts: {described!r}."
    for name in ("expert_action", "expert_notes"):
        assert isinstance(info.get(name, ""), str), f"{name} must be a str: {info[name]!r}."
