"""Wrappers for agents that want numbers: what the arrays hold, and that Gymnasium's tools work on them."""

import copy
import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

import hgpo_gym  # noqa: F401 - registers the ids
from hgpo_gym.envs import DiscreteActions, HashedText, TextEnv, TextVectorEnv, TokenIds, Turn
from hgpo_gym.envs.features import TextFeatures, hashed_counts
from hgpo_gym.memory import ContextWrapper

MAZE = "hgpo_gym/SignpostMaze-v0"


def words(text):
    """Ids of words by their first letter, 1 to 26; 27 for the rest."""
    return [ord(word[0].lower()) - 96 if word[0].isalpha() else 27 for word in text.split()]


def as_hashed(env):
    return DiscreteActions(HashedText(env, size=64, actions=4, action_size=8), size=4)


def as_tokens(env, truncate="beginning"):
    return DiscreteActions(TokenIds(env, words, 30, vocabulary_size=28, truncate=truncate), size=4)


@pytest.mark.filterwarnings("ignore:.*The environment.*is different from the unwrapped version")
@pytest.mark.parametrize("wrap", [as_hashed, as_tokens])
def test_the_checkers_of_gymnasium_and_stable_baselines3_are_content(wrap):
    check_env(wrap(gymnasium.make(MAZE)))
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(wrap(gymnasium.make(MAZE)))


def test_an_index_is_an_admissible_action_and_one_past_the_end_changes_nothing():
    env = DiscreteActions(gymnasium.make(MAZE), size=3)
    _, before = env.reset(seed=0, options={"task_id": "red-red-blue"})
    assert before["admissible_actions"] == ("walk on",)
    assert env.action_masks().tolist() == [True, False, False]
    observation, reward, terminated, _, info = env.step(2)
    assert observation.startswith("That is not possible here.")
    assert (reward, terminated, info["action_valid"]) == (0.0, False, False)
    assert info["admissible_actions"] == before["admissible_actions"]
    assert env.step(np.int64(0))[4]["action_valid"]
    _, _, _, _, info = env.step(0)
    assert info["admissible_actions"] == ("open red door", "open blue door", "open green door", "go back")
    assert (info["actions_left_out"], env.action_masks().tolist()) == (1, [True] * 3)


class Riddle(TextEnv):
    """Any response will do."""

    task_ids = ("one",)

    def begin_episode(self, task_id):
        return Turn("What is it?", task="Answer.")

    def take_action(self, action):
        return Turn("Perhaps.", terminated=True)


def test_where_actions_are_not_listed_an_index_is_refused():
    with pytest.raises(ValueError, match="lists no admissible actions: an index has nothing to point at"):
        DiscreteActions(Riddle(), size=3).reset()


def test_hashed_text_tells_what_is_seen_now_from_what_was_seen_before():
    env = HashedText(gymnasium.make(MAZE), window=1)
    without = HashedText(gymnasium.make(MAZE), window=0)
    corridors = {}
    for task_id in ("red-red-blue", "blue-red-red"):
        for one in (env, without):
            one.reset(options={"task_id": task_id})
            corridors[task_id, one] = one.step("walk on")[0]
    assert np.array_equal(corridors["red-red-blue", without], corridors["blue-red-red", without])
    assert not np.array_equal(corridors["red-red-blue", env], corridors["blue-red-red", env])
    assert np.linalg.norm(corridors["red-red-blue", env]) == pytest.approx(1.0)


def test_the_features_of_an_action_stand_at_its_index_wherever_it_is_listed():
    features = TextFeatures(size=16, actions=3, action_size=8)
    first = features({"observation": "a hall"}, ("open red door", "go back"))
    second = features({"observation": "a hall"}, ("go back", "open red door"))
    _, present, one = features.split(first[None])
    _, _, other = features.split(second[None])
    assert present.tolist() == [[True, True, False]]
    assert np.array_equal(one[0, [1, 0, 2]], other[0])
    assert not np.array_equal(one[0, 0], one[0, 1])
    assert not one[0, 2].any()


def test_hashes_are_those_of_every_machine():
    counts = hashed_counts({"a": "the red door"}, 16, 2).tolist()
    assert counts == [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]  # two more in one place, with opposite signs


def test_token_ids_are_padded_and_cut_where_asked():
    cut = {where: as_tokens(gymnasium.make(MAZE), where) for where in ("beginning", "end")}
    whole = words(
        "Find the way through the castle to the garden.\nYou stand at a signpost. It says: take the red door."
    )
    for where, env in cut.items():
        observation, _ = env.reset(options={"task_id": "red-red-blue"})
        assert observation.tolist() == whole + [0] * (30 - len(whole))
        for _ in range(2):
            observation, *_ = env.step(0)
        assert 0 not in observation
        begins = observation[:9].tolist() == whole[:9]
        assert begins == (where == "end")


def test_mistakes_are_named_with_a_remedy():
    env = gymnasium.make(MAZE)
    with pytest.raises(ValueError, match="put DiscreteActions around it, not inside"):
        HashedText(DiscreteActions(env, size=3))
    with pytest.raises(ValueError, match="Unknown truncate 'start'"):
        TokenIds(env, words, 5, vocabulary_size=28, truncate="start")
    with pytest.raises(ValueError, match="padding=28: an id from 0 to vocabulary_size - 1 = 27"):
        TokenIds(env, words, 5, vocabulary_size=28, padding=28)
    with pytest.raises(ValueError, match="longest=0: must be at least 1"):
        HashedText(env, longest=0)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_of_gymnasium_and_episode_statistics(mode):
    wrappers = [RecordEpisodeStatistics, partial(HashedText, size=32, actions=4), partial(DiscreteActions, size=4)]
    envs = gymnasium.make_vec(MAZE, 3, vectorization_mode=mode, wrappers=wrappers, sections=1)
    observations, _ = envs.reset(seed=1)
    assert observations.shape == (3, 32 + 4 * 33)
    returns: list[float] = []
    draw = np.random.default_rng(0)
    for _ in range(100):
        masks = np.stack(envs.call("action_masks"))
        actions = (draw.random(masks.shape) * masks).argmax(axis=1)
        _, _, _, _, infos = envs.step(actions)
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
    envs.close()
    assert set(returns) <= {0.0, 10.0}
    assert 10.0 in returns


def test_a_wrapped_environment_is_made_again_from_its_pickled_spec():
    env = as_hashed(gymnasium.make(MAZE, colours=2))
    again = gymnasium.make(pickle.loads(pickle.dumps(env.spec)))
    one, other = env.reset(seed=4)[0], again.reset(seed=4)[0]
    assert np.array_equal(one, other)
    assert again.observation_space == env.observation_space


@pytest.mark.parametrize("wrap", [as_hashed, as_tokens])
def test_copies_of_wrapped_environments_and_of_vectors_go_on_alike(wrap):
    for how in (copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))):
        env = wrap(gymnasium.make(MAZE, slip=0.3))
        env.reset(seed=0)
        env.step(1)
        same = how(env)
        for _ in range(5):
            (mine, *turn), (theirs, *their_turn) = env.step(0), same.step(0)
            assert (mine.tolist(), turn) == (theirs.tolist(), their_turn)

        vector = ContextWrapper(TextVectorEnv(MAZE, num_tasks=2, group_size=2, slip=0.3, expert=True))
        _, infos = vector.reset(seed=0)
        same = how(vector)
        for _ in range(4):
            actions = list(infos["expert_action"])
            (mine, *_, infos), (theirs, *_, their_infos) = vector.step(actions), same.step(actions)
            assert mine == theirs
            assert infos["context_keys"].tolist() == their_infos["context_keys"].tolist()
