"""Promises of every registered id; a new one is tested by being registered."""

import copy
import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

from hgpo_gym.envs import ENVIRONMENTS, TextVectorEnv, check_text_env

SLOW = ("hgpo_gym/ScienceWorld-v0",)
"""Each of its processes starts a Java virtual machine."""
IDS = [
    pytest.param(id, marks=pytest.mark.slow) if id in SLOW else id for id in ENVIRONMENTS if id.startswith("hgpo_gym/")
]


@pytest.fixture
def options(request, monkeypatch):
    """The options without which an id has nothing to play here."""
    id = request.node.callspec.params["id"]
    if id == "hgpo_gym/ALFWorld-v0":
        return {"data": request.getfixturevalue("alfworld_data"), "split": "valid_seen"}
    if id == "hgpo_gym/WebShop-v0":
        monkeypatch.setenv("HGPO_GYM_CACHE", str(request.getfixturevalue("webshop_cache")))
        return {"split": "generated_test"}
    if id == "hgpo_gym/TextWorld-v0":
        games = request.getfixturevalue("textworld_games")
        return {"games": [str(file) for file in sorted(games.glob("*.json"))]}  # the .z8 are as right, and slow
    if id == "hgpo_gym/BabyAI-v0":
        pytest.importorskip("minigrid")
        return {"tasks": 60}
    if id == "hgpo_gym/Search-v0":
        pytest.importorskip("bm25s")
        return {"passages": 200, "questions": 60}
    if id == "hgpo_gym/TextArena-v0":
        pytest.importorskip("textarena")
    if id == "hgpo_gym/ScienceWorld-v0":
        request.getfixturevalue("java")
        return {"actions": "seen", "simplifications": "easy", "tasks": ["lifespan-longest-lived", "find-animal"]}
    return {}


def random_actions(infos, generator):
    """An action for each sub-environment: mostly an admissible one, where some are listed."""
    listed = infos["admissible_actions"]
    return [
        str(generator.choice(actions)) if actions and generator.random() < 0.95 else "b a k e" for actions in listed
    ]


def gymnasiums_checker(id, options):
    check_env(gymnasium.make(id, disable_env_checker=True, **options).unwrapped, skip_render_check=True)


def our_checker(id, options):
    check_text_env(gymnasium.make(id, **options))


def rendering(id, options):
    env = gymnasium.make(id, render_mode="ansi", **options)
    observation, _ = env.reset(seed=0)
    assert env.render() == observation


def vectors(id, options, mode):
    env = gymnasium.make_vec(id, 2, vectorization_mode=mode, **options)
    assert isinstance(env, TextVectorEnv) == (mode == "vector_entry_point")
    generator = np.random.default_rng(0)
    observations, infos = env.reset(seed=0)
    for _ in range(5):
        assert all(isinstance(observation, str) for observation in observations)
        observations, rewards, terminations, truncations, infos = env.step(random_actions(infos, generator))
        assert rewards.shape == terminations.shape == truncations.shape == (2,)
    env.close()


def synchronous_vector(id, options):
    vectors(id, options, "sync")


def asynchronous_vector(id, options):
    vectors(id, options, "async")


def text_vector(id, options):
    vectors(id, options, "vector_entry_point")


def random_steps_under_statistics(id, options):
    env = RecordEpisodeStatistics(gymnasium.make(id, **options))
    generator = np.random.default_rng(0)
    steps, episodes, length, total = 0, 0, 0, 0.0
    _, info = env.reset(seed=0)
    enough = 300 if id in SLOW else 1000  # a step of its simulator takes 70 ms
    while steps < enough:
        [action] = random_actions({"admissible_actions": [info["admissible_actions"]]}, generator)
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        steps, length, total = steps + 1, length + 1, total + reward
        if terminated or truncated:
            assert info["episode"]["l"] == length <= env.spec.max_episode_steps
            assert info["episode"]["r"] == pytest.approx(total)
            _, info = env.reset()
            episodes, length, total = episodes + 1, 0, 0.0
    assert episodes >= enough // env.spec.max_episode_steps
    env.close()


def specs_make_it_again(id, options):
    env = gymnasium.make(id, **options)
    expected = env.reset(seed=3)
    stored = EnvSpec.from_json(env.spec.to_json())
    for spec in (pickle.loads(pickle.dumps(env.spec)), stored):
        assert gymnasium.make(spec).reset(seed=3) == expected
    vector = gymnasium.make_vec(stored, 2, vectorization_mode="vector_entry_point")
    again = gymnasium.make_vec(EnvSpec.from_json(vector.spec.to_json()))
    assert isinstance(again, TextVectorEnv)
    assert again.reset(seed=3)[0] == vector.reset(seed=3)[0]
    assert len(again.reset()[0]) == 2


def play(env, info, generator, steps):
    """Return the texts and pictures of a walk through several episodes."""
    turns = []
    for _ in range(steps):
        [action] = random_actions({"admissible_actions": [info["admissible_actions"]]}, generator)
        *turn, info = env.step(action)
        if turn[2] or turn[3]:
            _, info = env.reset()
        turns.append((turn, info))
    return turns


def copies_go_on_alike(id, options):
    for how in (copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))):
        env = gymnasium.make(id, **options)
        assert how(env).reset(seed=3) == env.reset(seed=3)
        _, info = env.reset(seed=3)
        info = play(env, info, np.random.default_rng(0), 4)[-1][1]
        env.action_space.seed(3)
        same = how(env)
        assert same.spec.id == id
        assert play(same, info, np.random.default_rng(1), 8) == play(env, info, np.random.default_rng(1), 8)
        assert same.action_space.sample() == env.action_space.sample()


def snapshots_go_on_in_another_environment(id, options):
    env, other = (gymnasium.make(id, **options).unwrapped for _ in range(2))
    if not env.can_snapshot:
        return
    _, info = env.reset(seed=3)
    play(env, info, np.random.default_rng(0), 3)
    snapshot = env.snapshot()

    def go_on(walker):
        _, info = walker.restore(snapshot)
        return play(walker, info, np.random.default_rng(1), 8)

    expected = go_on(env)
    other.reset(seed=4, options={"task_id": env.task_ids[-1]})
    assert go_on(other) == expected == go_on(env)


def listed_with_its_limit(id, options):
    record = ENVIRONMENTS[id]
    assert gymnasium.spec(id).max_episode_steps == record.max_episode_steps
    assert record.description.endswith(".")
    assert Path(record.name).name == record.name


CHECKS = [
    gymnasiums_checker, our_checker, rendering, synchronous_vector, asynchronous_vector, text_vector,
    random_steps_under_statistics, specs_make_it_again, copies_go_on_alike, snapshots_go_on_in_another_environment,
    listed_with_its_limit,
]  # fmt: skip


@pytest.mark.promise("Every registered environment keeps the contract of text environments.")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("id", IDS)
def test_every_environment(id, check, options):
    check(id, options)
