"""Plans that are tried, and executions under the best of them: who plays what, what is shared, what is compared."""

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, estimate
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import RandomPolicy, Response, Sampling
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.samplers import make_sampler
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from tests.support.small_models import make_policy

TEAM = PlannerActor(every=100, plans=("red", "blue", "green"))


def maze(groups=2, size=6, **options):
    options = {"sections": 1, "max_episode_steps": 8, "split": "all", **options}
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", groups, size, **options)
    return ContextWrapper(vector, "bare", window=2, history_length=2)


def planned(policy=None, groups=2, team=TEAM, env=None, trials=3):
    env = env or maze()
    sampler = make_sampler(Choice("best_plan", {"trials": trials, "executions": 6 - trials}), env.unwrapped.task_ids, 0)
    return sampler.collector.collect(
        env,
        policy or make_policy(),
        Sampling(),
        task_ids=env.unwrapped.task_ids[:groups],
        seeds=[(2, 5, 0, group) for group in range(groups)],
        team=team,
    )


class Obeying:
    """Says the plan of the episode's number, and goes where the plan says; a path to the garden is red."""

    def __init__(self, plans):
        self.plans = plans

    def generate(self, requests, sampling):
        return [Response(self._say(request)) for request in requests]

    def _say(self, request):
        if request.role == "planner":
            return self.plans[request.seed[-2] % len(self.plans)]
        plan = next(line for line in request.prompt.splitlines() if line.startswith('The output of "planner"'))
        doors = [
            response for response in request.allowed_responses if any(plan.endswith(word) for word in response.split())
        ]
        return (doors or request.allowed_responses)[0]


def test_executions_begin_with_the_plan_that_earned_most():
    plans = ("red", "blue", "green")
    rollout = planned(Obeying(plans), groups=2)
    batch = rollout.batch
    returns = np.array([episode.episode_return for episode in rollout.episodes]).reshape(2, 6)
    first = batch.first_rows
    actions = np.array([rollout.steps[row].action for row in first]).reshape(2, 6)
    execution = batch.extras["execution"][first].reshape(2, 6)
    for group in range(2):
        assert actions[group, :3].tolist() == list(plans)
        assert execution[group].tolist() == [False] * 3 + [True] * 3
        best = plans[int(np.argmax(returns[group, :3]))]
        assert actions[group, 3:].tolist() == [best] * 3
    assert {tuple(sorted(set(values))) for values in returns.tolist()} == {(0.0, 10.0)}


def test_the_trials_are_the_episodes_of_a_sampler_in_order():
    rollout, env = planned(), maze()
    alone = collect(
        env,
        make_policy(),
        Sampling(),
        task_ids=env.unwrapped.task_ids[:2],
        seeds=[(2, 5, 0, group) for group in range(2)],
        team=TEAM,
    )
    expected = [alone.episodes[episode] for episode in (0, 1, 2, 6, 7, 8)]
    assert list(rollout.chains) == expected == [rollout.episodes[episode] for episode in (0, 1, 2, 6, 7, 8)]


def test_a_plan_is_learned_from_once_and_everything_is_counted():
    rollout = planned()
    batch = rollout.batch
    copies = batch.extras["opening"] & batch.extras["execution"]
    assert copies.sum() == 2 * 3
    np.testing.assert_array_equal(batch.trained, ~copies)
    assert len(np.unique(batch.extras["response"])) == len(batch) - 6
    for row in np.flatnonzero(copies):
        (source,) = np.flatnonzero((batch.extras["response"] == batch.extras["response"][row]) & ~copies)
        assert rollout.tokens[source] is rollout.tokens[row]
        assert batch.group[source] == batch.group[row]
        assert not batch.extras["execution"][source]
    assert rollout.played_episodes == 12
    assert rollout.played_steps == sum(episode.steps for episode in rollout.episodes)
    assert rollout.played_tokens == sum(len(rollout.tokens[row].token_ids) for row in np.flatnonzero(~copies))


def test_executions_have_separate_chance_and_responses():
    rollout = planned(env=maze(slip=0.4), trials=2)
    first = rollout.batch.trajectory
    ways = {tuple(rollout.steps[row].action for row in np.flatnonzero(first == episode)) for episode in range(2, 6)}
    assert len(ways) > 1


def batch_of_plans():
    """Two plans in three trials, of which `b` earned most, and two executions of it; each episode plans and acts."""
    return StepBatch.from_records(
        group=[0] * 10,
        trajectory=[episode for episode in range(5) for _ in range(2)],
        step=[0, 1] * 5,
        observation=["start", "hall"] * 5,
        reward=[0, 0, 0, 2, 0, 4, 0, 1, 0, 3],
        penalty=[0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5],
        history_length=0,
        plan=[0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
        opening=[True, False] * 5,
        execution=[False] * 6 + [True] * 4,
    )


def test_plans_are_compared_with_plans_and_executions_with_executions():
    found = estimate("best_plan", batch_of_plans(), norm="mean_norm")
    # Trials earn 0 under a, 2 and 4 under b: 0, 3, 3, whose mean is 2. Executions earn 1 and 3.
    np.testing.assert_allclose(found, [-2, 0, 1, 0, 1, 0, 1, -1, 1, 1 - 0.5])
    scaled = estimate("best_plan", batch_of_plans())
    np.testing.assert_allclose(scaled[[0, 2]], np.array([-2, 1]) / (np.sqrt(3) + 1e-6))
    np.testing.assert_allclose(scaled[[7, 9]], np.array([-1, 1]) / (np.sqrt(2) + 1e-6) - [0, 0.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"team": None}, "this one acts first. Choose a team that plans, such as team=planner_actor"),
        ({"trials": 1}, "trials=1: at least 2 are needed"),
        (
            {"env": maze(size=4)},
            r"rollout.group_size=4: the groups of sampler=best_plan .* have trials \+ executions = 6",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        planned(RandomPolicy(), **options)
