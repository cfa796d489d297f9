"""What every registered id can do; a new one is tested by being registered."""

import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

from hgpo_gym.envs import ENVIRONMENTS, TextVectorEnv, check_text_env

IDS = [id for id in ENVIRONMENTS if id.startswith("hgpo_gym/")]


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
    if id == "hgpo_gym/TextArena-v0":
        pytest.importorskip("textarena")
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


def a_thousand_random_steps_under_statistics(id, options):
    env = RecordEpisodeStatistics(gymnasium.make(id, **options))
    generator = np.random.default_rng(0)
    steps, episodes, length, total = 0, 0, 0, 0.0
    _, info = env.reset(seed=0)
    while steps < 1000:
        [action] = random_actions({"admissible_actions": [info["admissible_actions"]]}, generator)
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        steps, length, total = steps + 1, length + 1, total + reward
        if terminated or truncated:
            assert info["episode"]["l"] == length <= env.spec.max_episode_steps
            assert info["episode"]["r"] == pytest.approx(total)
            _, info = env.reset()
            episodes, length, total = episodes + 1, 0, 0.0
    assert episodes >= 1000 // env.spec.max_episode_steps
    env.close()


def pickling_of_the_spec(id, options):
    env = gymnasium.make(id, **options)
    copy = gymnasium.make(pickle.loads(pickle.dumps(env.spec)))
    (observation, info), (same, same_info) = env.reset(seed=3), copy.reset(seed=3)
    assert (observation, info) == (same, same_info)
    assert copy.spec.kwargs == options


def listed_with_its_limit(id, options):
    record = ENVIRONMENTS[id]
    assert gymnasium.spec(id).max_episode_steps == record.max_episode_steps
    assert record.description.endswith(".")
    assert Path(record.name).name == record.name


CHECKS = [
    gymnasiums_checker,
    our_checker,
    rendering,
    synchronous_vector,
    asynchronous_vector,
    text_vector,
    a_thousand_random_steps_under_statistics,
    pickling_of_the_spec,
    listed_with_its_limit,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("id", IDS)
def test_every_environment(id, check, options):
    check(id, options)
