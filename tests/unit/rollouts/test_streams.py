"""Rollouts of a policy that answers one by one: the same rows in any order, and nobody waits for a slow environment."""

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import RandomPolicy, Sampling
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from tests.support.envs import MEETING


class Scattered(RandomPolicy):
    """Answers like RandomPolicy, but a few prompts at a time, picked by a separate generator."""

    def __init__(self, order):
        self.generator = np.random.default_rng(order)

    def stream(self, sampling):
        return ScatteredStream(self, sampling)


class ScatteredStream:
    in_step = False

    def __init__(self, policy, sampling):
        self.policy, self.sampling, self.asked = policy, sampling, {}

    @property
    def pending(self):
        return len(self.asked)

    def ask(self, requests):
        assert not self.asked.keys() & requests.keys()
        self.asked |= requests

    def work(self):
        generator = self.policy.generator
        chosen = generator.permutation(sorted(self.asked))[: generator.integers(4)].tolist()
        responses = self.policy.generate([self.asked.pop(number) for number in chosen], self.sampling)
        return dict(zip(chosen, responses, strict=True))


def maze(num_tasks, group_size, **options):
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, expert=True, **options)
    return ContextWrapper(vector, "bare", window=2, history_length=2)


@pytest.fixture(scope="module")
def in_step():
    env = maze(3, 4, sections=1, max_episode_steps=12, split="all")
    return play(env, RandomPolicy())


def play(env, policy, **options):
    tasks = env.unwrapped.task_ids[:3]
    seeds = [(0, n) for n in range(3)]
    return collect(env, policy, Sampling(), task_ids=tasks, seeds=seeds, invalid_action_penalty=0.1, **options)


@pytest.mark.promise("A rollout does not depend on who answers first.")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", [1, 2])
def test_the_order_of_responses_does_not_show_in_a_rollout(in_step, order, workers):
    env = maze(3, 4, sections=1, max_episode_steps=12, split="all", workers=workers)
    rollout = play(env, Scattered(order))
    for name in ("group", "trajectory", "step", "reward", "context_keys", "penalty"):
        np.testing.assert_array_equal(getattr(rollout.batch, name), getattr(in_step.batch, name))
    assert rollout.steps == in_step.steps
    assert rollout.episodes == in_step.episodes
    assert len({episode.steps for episode in rollout.episodes}) > 1
    again = play(env, RandomPolicy())
    assert again.steps == in_step.steps
    env.close()


@pytest.mark.parametrize("order", [1, 2])
def test_nor_does_it_where_a_team_says_several_things_before_an_action(order):
    env, team = maze(3, 4, sections=1, max_episode_steps=6, split="all"), PlannerActor(every=2, plans=["on", "back"])
    together, apart = (play(env, policy, team=team) for policy in (RandomPolicy(), Scattered(order)))
    assert apart.steps == together.steps
    assert apart.episodes == together.episodes
    for name in ("agent", "turn"):
        np.testing.assert_array_equal(apart.batch.extras[name], together.batch.extras[name])


def test_a_slow_environment_holds_nobody_up(tmp_path):
    """In step with the other, the slow one would wait for good: the other ends two steps later."""
    vector = TextVectorEnv(MEETING, 2, workers=2, folder=str(tmp_path))
    env = ContextWrapper(vector, "bare")
    rollout = collect(env, Scattered(0), Sampling(), task_ids=["wait", "go"], seeds=[(0,), (1,)])
    assert [episode.steps for episode in rollout.episodes] == [3, 3]
    np.testing.assert_array_equal(rollout.batch.step, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(rollout.batch.trajectory, [0, 1, 0, 1, 0, 1])
    env.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_sub_environments_can_be_stepped_apart(workers):
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 3, sections=1, split="all", workers=workers)
    whole = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 3, sections=1, split="all")
    options = {"task_ids": vector.task_ids[:3], "group_seeds": [1, 2, 3]}
    vector.reset(options=options)
    whole.reset(options=options)
    vector.send({2: "walk on"})
    with pytest.raises(ValueError, match=r"Sub-environment 2 was sent an action already: call receive\(\)"):
        vector.send({2: "walk on"})
    vector.send({0: "walk on"})
    results = vector.receive(at_least=2)
    observations, rewards, *_, infos = whole.step(["walk on"] * 3)
    assert results.keys() == {0, 2}
    for row, (observation, reward, terminated, truncated, info) in results.items():
        assert (observation, reward, terminated, truncated) == (observations[row], rewards[row], False, False)
        assert info["admissible_actions"] == infos["admissible_actions"][row]
    assert vector.receive() == {}
    vector.reset(options=options)
    vector.send({1: "walk on"})
    assert vector.reset(options=options)[0] == whole.reset(options=options)[0]  # what was under way is forgotten
    assert vector.receive() == {}
    vector.close()


def test_an_ended_episode_is_not_stepped():
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, sections=1, max_episode_steps=1)
    vector.reset(seed=0)
    vector.step(["walk on"])
    with pytest.raises(ResetNeeded, match=r"sub-environment 0 has ended: call reset\(\)"):
        vector.send({0: "walk on"})
