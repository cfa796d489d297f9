"""Values by restarts: near the exact ones, shared by equal histories, from the moment itself, and counted as played."""

from dataclasses import replace

import numpy as np
import pytest

from hgpo_gym.config.compose import load_config
from hgpo_gym.creditbench.decision_process import Situations, unfold
from hgpo_gym.creditbench.exact import solve
from hgpo_gym.creditbench.policies import uniform_policy
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.envs.registration import make
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.policies import RandomPolicy, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.restarts import collect_with_restarts
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from hgpo_gym.runs.directory import read_metrics
from tests.support.envs import dice
from tests.support.small_models import make_policy
from tests.support.small_runs import train
from tests.unit.rollouts.test_trees import columns

HORIZON, GAMMA = 8, 0.9


def maze(num_tasks=2, group_size=4, window=2, **options):
    options = {"sections": 1, "max_episode_steps": HORIZON, "split": "all", **options}
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, **options)
    return ContextWrapper(vector, "bare", window=window, history_length=2)


def play(env, policy=None, function=collect_with_restarts, groups=2, **options):
    if function is collect_with_restarts:
        options = {"restarts": 3, "gamma": GAMMA, **options}
    return function(
        env,
        policy or RandomPolicy(),
        Sampling(),
        task_ids=env.unwrapped.task_ids[:groups],
        seeds=[(RandomStream.ROLLOUT, 5, 0, group) for group in range(groups)],
        invalid_action_penalty=0.5,
        **options,
    )


def rows_with_history(rollout):
    """Return each row's group, its history of observations and actions, and its observation."""
    batch, histories = rollout.batch, {}
    for row in batch.in_order:
        trajectory, text = int(batch.trajectory[row]), rollout.steps[row]
        before = histories.get((trajectory, int(batch.step[row]) - 1), ())
        histories[trajectory, int(batch.step[row])] = (*before, text.observation, text.action)
        yield int(row), (int(batch.group[row]), *before, text.observation)


@pytest.mark.parametrize("policy", [RandomPolicy, make_policy])
def test_the_episodes_are_those_that_are_played_without_restarts(policy):
    plain, restarted = play(maze(), policy(), collect), play(maze(), policy())
    for name, values in columns(plain.batch).items():
        assert columns(restarted.batch)[name].tobytes() == values.tobytes(), name
    assert columns(restarted.batch).keys() - columns(plain.batch).keys() == {"value"}
    assert (restarted.steps, restarted.episodes) == (plain.steps, plain.episodes)


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_values_approach_the_exact_ones(slip):
    """With plates the uniform policy is one of the observation, whose values a dynamic program has, step by step."""
    env = maze(num_tasks=1, group_size=6, plates=True, slip=slip)
    restarts, rules = 150, make("hgpo_gym/SignpostMaze-v0", sections=1, plates=True, slip=slip, split="all").unwrapped
    rollout = play(env, groups=1, restarts=restarts)
    situations = Situations()
    process = unfold(
        rules.dynamics(env.unwrapped.task_ids[0]), situations, window=0, history_length=0, key="observation"
    )
    exact = solve(process, uniform_policy(situations), GAMMA, HORIZON)
    states = {int(keys[0]): state for state, keys in enumerate(process.context_keys)}
    batch, errors = rollout.batch, {}
    for row, history in rows_with_history(rollout):
        value = exact.value[batch.step[row], states[int(batch.context_keys[row, 0])]]
        errors[history] = batch.extras["value"][row] - value
    assert len(errors) > 15
    assert np.abs(list(errors.values())).max() < 4.5 * 5 / np.sqrt(
        restarts
    )  # a return of 0 to 10 deviates by 5 at most
    assert np.sqrt(np.mean(np.square(list(errors.values())))) < 5 / np.sqrt(restarts)


def test_equal_histories_share_their_restarts_and_others_do_not():
    rollout = play(maze(num_tasks=2, group_size=16), restarts=2)
    shared = {}
    for row, history in rows_with_history(rollout):
        shared.setdefault(history, set()).add(rollout.batch.extras["value"][row])
    assert all(len(values) == 1 for values in shared.values())
    assert len(shared) < len(rollout.batch)
    assert rollout.episodes_left_out == 2 * len(shared)  # and so nothing else was played
    assert rollout.played_episodes == 32 + 2 * len(shared)
    assert rollout.played_steps == len(rollout.batch) + rollout.steps_left_out


def test_histories_with_other_subgoals_in_force_are_others():
    """The next prompt shows the subgoal."""
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 1, 12, sections=1, max_episode_steps=4, split="all")
    template = replace(PromptTemplate.named("plan"), subgoals=("red", "blue"))
    env = ContextWrapper(vector, template, window=2, history_length=2)
    rollout = play(env, groups=1, restarts=2)
    histories, blind = set(), set()
    for row, history in rows_with_history(rollout):
        same_episode = rollout.batch.trajectory == rollout.batch.trajectory[row]
        so_far = np.flatnonzero(same_episode & (rollout.batch.step <= rollout.batch.step[row]))
        in_force = [rollout.steps[n].prompt.split("\n")[0] for n in so_far[np.argsort(rollout.batch.step[so_far])]]
        histories.add((history, *in_force))
        blind.add(history)
    assert len(blind) < len(histories)
    assert rollout.episodes_left_out == 2 * len(histories)


def test_where_chance_rules_equal_histories_begin_in_every_episode_that_has_them():
    """Three rolls of a die, of which what was rolled is seen: the value before the last is 3.5 more than what lies."""
    rollout = play(dice(num_tasks=1, group_size=8), groups=1, restarts=200, gamma=1.0)
    assert len(set(rollout.batch.extras["value"][rollout.batch.step == 0])) == 1
    for row, history in rows_with_history(rollout):
        rolled = sum(map(int, history[-1].split())) if rollout.batch.step[row] else 0
        left = 3 - rollout.batch.step[row]
        deviation = np.sqrt(left * 35 / 12 / 200)
        assert abs(rollout.batch.extras["value"][row] - rolled - 3.5 * left) < 4.5 * deviation


class Noting(RandomPolicy):
    """Notes what it is asked, by the seed's stream."""

    def __init__(self):
        self.asked = {}

    def generate(self, requests, sampling):
        for request in requests:
            self.asked.setdefault(request.seed[0], []).append(request)
        return super().generate(requests, sampling)


@pytest.mark.parametrize("team", [None, PlannerActor(every=3, plans=("red", "blue"))])
def test_a_restart_begins_with_the_prompt_and_the_keys_of_its_moment(team):
    """The window of the memory, the messages to a role, and the role's turn: a prompt of the episode is that of exactly
    as many continuations as begin there."""
    policy = Noting()
    env = maze(num_tasks=1, group_size=1, window=1)
    rollout = play(env, policy, groups=1, restarts=2, team=team)
    in_episode = policy.asked[RandomStream.ROLLOUT]
    assert len(in_episode) == len(rollout.batch)
    first = {}
    for request in policy.asked[RandomStream.RESTART]:
        first.setdefault(request.seed[:-1], request)
    begun = sorted((seed[-1], request) for seed, request in first.items())
    for number, request in enumerate(in_episode):
        for _, start in begun[2 * number : 2 * number + 2]:
            assert (start.prompt, start.context_keys, start.role) == (
                request.prompt,
                request.context_keys,
                request.role,
            )
            assert start.seed[-1] == number  # responses of the episode so far
    assert len(begun) == 2 * len(in_episode)


def test_a_share_of_the_histories_has_the_values_that_it_has_among_all():
    everything, some = play(maze()), play(maze(), share=0.4)
    value, drawn = some.batch.extras["value"], ~np.isnan(some.batch.extras["value"])
    assert drawn[some.batch.step == 0].all()
    assert 0.2 < drawn[some.batch.step > 0].mean() < 0.6
    np.testing.assert_array_equal(value[drawn], everything.batch.extras["value"][drawn])
    assert some.played_steps < everything.played_steps
    none = play(maze(), share=0.0)
    np.testing.assert_array_equal(~np.isnan(none.batch.extras["value"]), none.batch.step == 0)


def test_worker_processes_have_the_same_values():
    env = dice(2, 4, workers=2)
    parallel = play(env)
    env.close()
    serial = play(dice(2, 4))
    for name, values in columns(serial.batch).items():
        np.testing.assert_allclose(columns(parallel.batch)[name], values, rtol=1e-6)
    assert parallel.played_steps == serial.played_steps


RUN = ["algo=vineppo", "sampler.restarts=2"]


def test_training_plays_what_other_algorithms_play_and_counts_the_restarts(tmp_path):
    train(tmp_path / "vineppo", *RUN, "trainer.iterations=1")
    train(tmp_path / "gigpo", "algo=gigpo", "trainer.iterations=1")
    (ours,), (plain,) = (read_metrics(tmp_path / name) for name in ("vineppo", "gigpo"))
    for name in ("success", "episode_return", "episode_length", "valid_action_rate"):
        assert ours[name] == plain[name]
    assert plain["episodes"] == 8
    assert plain["steps"] == plain["tokens"] == round(plain["episode_length"] * 8)
    assert ours["steps"] == ours["tokens"] == ours["steps_so_far"] > 3 * plain["steps"]
    assert (ours["episodes"] - 8) % 2 == 0
    assert ours["episodes"] > 8 + 2 * 8


def test_a_language_model_trains_by_restarts(tmp_path):
    train(
        tmp_path / "run", *RUN, "model=tiny", "warmstart.source=none", "trainer.iterations=1", "env.sections=1",
        "seed=1",
    )  # fmt: skip
    (line,) = read_metrics(tmp_path / "run")
    assert line["tokens"] > line["steps"] > 4 * 8
    assert line["gradient_norm"] > 0


def test_the_sampler_comes_with_the_algorithm_and_has_its_discount():
    config = load_config("config", ["algo=vineppo", "algo.gamma=0.9"])
    assert config["sampler"] == {"name": "restarts", "restarts": 9, "share": 1.0, "gamma": 0.9}
    assert load_config("config", ["algo=gae", "sampler=restarts"])["sampler"]["gamma"] == 1.0
    on_a_base = ["algo=empg", "algo.base=vineppo", "sampler=restarts", "+algo.base_options.gamma=0.5"]
    assert load_config("config", on_a_base)["sampler"]["gamma"] == 0.5
    assert load_config("config", ["algo=gigpo"])["sampler"]["name"] == "in_order"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"restarts": 0}, r"restarts=0: a value needs 1"), ({"share": 1.5}, r"share=1\.5"), ({"gamma": -1}, r"gamma=-1")],
)
def test_impossible_numbers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        play(maze(), **options)
