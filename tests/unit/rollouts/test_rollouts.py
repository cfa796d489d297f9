"""A rollout's columns beside rewards and keys, its saved files, and the selection of episodes."""

import gc
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, cluster_observations
from hgpo_gym.envs import TextEnv, TextVectorEnv, Turn, register
from hgpo_gym.memory import ContextWrapper, PromptTemplate
from hgpo_gym.policies import ExpertPolicy, RandomPolicy, Response, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts import saved
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.restarts import collect_with_restarts
from hgpo_gym.rollouts.rollout import merge, take_episodes
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor


def maze(num_tasks=3, group_size=4, key="observation", **options):
    options = {"sections": 1, "max_episode_steps": 10, "split": "all", **options}
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, **options)
    return ContextWrapper(vector, "bare", window=2, history_length=2, key=key)


def play(env, groups=3, seed=0, **options):
    seeds = [(seed, group) for group in range(groups)]
    return collect(env, RandomPolicy(), Sampling(), task_ids=env.unwrapped.task_ids[:groups], seeds=seeds, **options)


@pytest.fixture(scope="module")
def rollout():
    return play(maze(), invalid_action_penalty=0.5)


def final_observations(rollout, env):
    """Return each episode's final observation by replaying its actions; the maze is deterministic."""
    found = []
    for index, episode in enumerate(rollout.episodes):
        env.reset(options={"task_ids": [episode.task_id], "group_seeds": [0]})
        for row in np.flatnonzero(rollout.batch.trajectory == index):
            env.step([rollout.steps[row].action])
        found.append(env.unwrapped._observations[0])
    return found


class WithoutAThought:
    """Does what the expert does, and says nothing of why."""

    def generate(self, requests, sampling):
        return [Response(request.expert_response.replace("<think></think>", "").upper()) for request in requests]


@pytest.mark.parametrize(
    ("reading", "policy", "executed", "penalty"),
    [
        ("strict", ExpertPolicy(), True, 0.0),
        ("published", ExpertPolicy(), True, 0.0),
        ("strict", WithoutAThought(), False, 0.5),
        ("published", WithoutAThought(), True, 0.5),
    ],
)
def test_a_response_without_a_thought_acts_as_its_reading_says_and_is_penalised(reading, policy, executed, penalty):
    prompt = replace(PromptTemplate.named("instruct"), response_reading=reading)
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, sections=1, max_episode_steps=10, expert=True)
    options = {"task_ids": vector.task_ids[:1], "seeds": [(0, 0)], "invalid_action_penalty": 0.5}
    rollout = collect(ContextWrapper(vector, prompt), policy, Sampling(), **options)
    (episode,) = rollout.episodes
    assert episode.won == executed
    assert all(bool(step.action) == executed for step in rollout.steps)
    assert rollout.batch.penalty.tolist() == [penalty] * len(rollout.batch)
    assert episode.valid_steps == (0 if penalty else episode.steps)


@pytest.mark.parametrize("key", ["observation", "observation+action"])
def test_actions_outcomes_and_ends_are_those_of_the_texts(key):
    rollout = play(maze(key=key))
    batch = rollout.batch
    finals = final_observations(rollout, maze(1, 1))
    records = StepBatch.from_records(
        group=batch.group.tolist(),
        trajectory=batch.trajectory.tolist(),
        step=batch.step.tolist(),
        observation=[step.observation for step in rollout.steps],
        reward=batch.reward.tolist(),
        history_length=2,
        action=[step.action for step in rollout.steps],
        success=[rollout.episodes[trajectory].won for trajectory in batch.trajectory],
        final_observation=[finals[trajectory] for trajectory in batch.trajectory],
        key=key,
    )
    for name in ("context_keys", "action", "success", "final_keys"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(records, name))
    lengths = np.array([episode.steps for episode in rollout.episodes])
    won = np.array([episode.won for episode in rollout.episodes])
    assert {True, False} == set(won)
    np.testing.assert_array_equal(batch.extras["truncated"], ~won[batch.trajectory])
    assert set(lengths[~won]) == {10}
    np.testing.assert_array_equal(batch.extras["turn"], batch.step)
    assert not batch.extras["agent"].any()


def test_an_episode_that_is_won_by_the_last_step_allowed_was_not_cut_off():
    def expert(limit):
        env = ContextWrapper(
            TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, sections=1, expert=True, max_episode_steps=limit), "bare"
        )
        return collect(env, ExpertPolicy(), Sampling(), task_ids=env.unwrapped.task_ids[:1], seeds=[(0, 0)])

    (freely,) = expert(10).episodes
    just, short = expert(freely.steps), expert(freely.steps - 1)
    assert [one.episodes[0].won for one in (just, short)] == [True, False]
    assert not just.batch.extras["truncated"].any()
    assert short.batch.extras["truncated"].all()


class Marked(TextEnv):
    """Says what stood at the step: a truth value, a whole number, a number, a word."""

    task_ids = ("one", "two")

    def begin_episode(self, task_id):
        self.steps = 0
        return Turn("Go.", task=task_id, admissible_actions=("on", "off"))

    def take_action(self, action):
        self.steps += 1
        marks = {"milestone": self.steps == 2, "place": self.steps, "turn_reward": self.steps / 2, "colour": "red"}
        return Turn("Go.", admissible_actions=("on", "off"), terminated=self.steps == 3, extras=marks)


register("hgpo_gym_tests/Marked-v0", Marked, max_episode_steps=5, description="for tests")


def test_numbers_that_an_environment_names_become_columns():
    env = ContextWrapper(TextVectorEnv("hgpo_gym_tests/Marked-v0", 2, 2), "bare")
    extras = play(env, 2, record=["milestone", "place", "turn_reward"]).batch.extras
    np.testing.assert_array_equal(extras["milestone"], [False] * 4 + [True] * 4 + [False] * 4)
    np.testing.assert_array_equal(extras["place"], np.repeat([1, 2, 3], 4))
    np.testing.assert_array_equal(extras["turn_reward"], np.repeat([0.5, 1.0, 1.5], 4))
    assert [extras[name].dtype.kind for name in ("milestone", "place", "turn_reward")] == ["b", "i", "f"]
    with pytest.raises(
        ValueError,
        match=r"an estimator or a shaping: the column 'mile' is recorded of .* after a step, which has no 'mile'\.",
    ):
        play(env, 2, record=["mile"])
    with pytest.raises(ValueError, match=r"rollout.record, .*: info\['colour'\] is 'red'; a column holds numbers"):
        play(env, 2, record=["colour"])


def test_no_groups_make_an_empty_rollout_that_adds_nothing(rollout):
    empty = play(maze(), 0)
    assert empty.episodes == empty.tokens == empty.steps == ()
    assert empty.batch.context_keys.shape == (0, 3)
    merged = merge([empty, rollout, empty])
    assert merged is rollout
    assert merge([empty, empty]).episodes == ()


COLLECTORS = {
    "episodes": collect,
    "restarts": partial(collect_with_restarts, restarts=3, gamma=0.9),
    "team": partial(collect, team=PlannerActor(every=2, plans=("red", "blue"))),
}


@pytest.mark.parametrize("collector", COLLECTORS.values(), ids=COLLECTORS)
def test_groups_collected_apart_are_those_collected_together(collector):
    def collected(*groups):
        env = maze(len(groups))
        seeds = [(RandomStream.ROLLOUT, 5, 0, group) for group in groups]
        tasks = [env.unwrapped.task_ids[group] for group in groups]
        return collector(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds)

    whole, merged = collected(0, 1, 2), merge([collected(0, 1), collected(2)])
    same(merged, whole)
    assert (merged.played_steps, merged.played_episodes) == (whole.played_steps, whole.played_episodes)


def same(one, other):
    for name, values in one.batch._columns():
        np.testing.assert_array_equal(values, dict(other.batch._columns())[name])
    assert (one.steps, one.episodes) == (other.steps, other.episodes)


def test_some_episodes_of_a_rollout_are_a_rollout(rollout):
    kept = np.zeros(12, dtype=np.bool_)
    kept[[0, 3, 8, 9]] = True
    some = take_episodes(rollout, kept)
    assert some.episodes == tuple(rollout.episodes[index] for index in (0, 3, 8, 9))
    np.testing.assert_array_equal(some.groups, [0, 0, 1, 1])
    np.testing.assert_array_equal(np.unique(some.batch.trajectory), np.arange(4))
    rows = np.flatnonzero(kept[rollout.batch.trajectory])
    assert some.steps == tuple(rollout.steps[row] for row in rows)
    np.testing.assert_array_equal(some.batch.context_keys, rollout.batch.context_keys[rows])
    assert take_episodes(rollout, np.ones(12, dtype=np.bool_)) is rollout


def test_a_kept_rollout_has_every_column_and_both_rewards(rollout, tmp_path):
    saved.keep(rollout, 1, tmp_path)
    kept = saved.load(tmp_path, 1)
    same(kept_as_rollout(kept, rollout), rollout)
    assert kept.batch.texts == rollout.batch.texts
    assert kept.environment_reward is kept.environment_penalty is None
    shaped = replace(rollout.batch, reward=rollout.batch.reward - 0.25, trained=rollout.batch.step % 2 == 0)
    saved.keep(rollout, 2, tmp_path, shaped)
    kept = saved.load(tmp_path, 2)
    np.testing.assert_array_equal(kept.batch.reward, shaped.reward)
    np.testing.assert_array_equal(kept.batch.trained, shaped.trained)
    np.testing.assert_array_equal(kept.environment_reward, rollout.batch.reward)
    assert kept.environment_penalty is None


def kept_as_rollout(kept, rollout):
    assert kept.actions == tuple(step.action for step in rollout.steps)
    return replace(rollout, batch=kept.batch, episodes=kept.episodes)


def test_similar_observations_of_a_rollout_have_one_key():
    """As `cluster_observations` makes of the same rollout with exact keys, which carries the texts of its keys."""

    def batch(similarity):
        vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 3, 4)
        env = ContextWrapper(vector, similarity=similarity, key="observation+action")
        seeds = [(group,) for group in range(3)]
        rollout = collect(env, RandomPolicy(), Sampling(), task_ids=env.unwrapped.task_ids[:3], seeds=seeds)
        env.close()
        return rollout.batch

    exact, similar = batch(None), batch(0.6)
    expected = cluster_observations(exact, exact.texts, 0.6, key="observation+action")
    np.testing.assert_array_equal(similar.context_keys, expected.context_keys)
    np.testing.assert_array_equal(similar.final_keys, expected.final_keys)
    assert len(np.unique(similar.context_keys)) < len(np.unique(exact.context_keys))


class Noting(ContextWrapper):
    """Also lists the prompts that it shows."""

    def receive(self, at_least=1):
        results = super().receive(at_least)
        self.__dict__.setdefault("shown", []).extend(prompt for prompt, *_ in results.values())
        return results


def test_kept_prompts_of_a_whole_history_grow_as_the_history_does():
    """The prompts are exact, and their bytes are those of the episode's texts, not of a copy at each step."""
    kept, shown = [], []
    for length in (50, 200):
        options = {"sections": 2, "distance": 99, "split": "all", "max_episode_steps": length}
        env = Noting(TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, 1, **options), "brief", window=None)
        steps = play(env, groups=1).steps
        for same_steps in (steps, pickle.loads(pickle.dumps(steps))):
            assert [step.prompt for step in same_steps[1:]] == env.shown[:-1]
        kept.append(len(pickle.dumps(steps)))
        shown.append(sum(len(step.prompt) for step in steps))
    assert shown[1] > 12 * shown[0]
    assert kept[1] < 5 * kept[0] < shown[1] / 2


class Watching(RandomPolicy):
    """Notes the garbage collector's thresholds while episodes are played."""

    def generate(self, requests, sampling):
        self.thresholds = gc.get_threshold()
        return super().generate(requests, sampling)


def test_playing_searches_young_garbage_only():
    """A full collection would search every row so far, again and again."""
    policy, env, before = Watching(), maze(), gc.get_threshold()
    collect(env, policy, Sampling(), task_ids=env.unwrapped.task_ids[:3], seeds=[(0, group) for group in range(3)])
    assert policy.thresholds[:2] == before[:2]
    assert policy.thresholds[2] > 1_000_000
    assert gc.get_threshold() == before
