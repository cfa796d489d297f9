"""Critics: what they read, what they learn, and that a run with one can be broken off and resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hgpo_gym.advantages import StepBatch, assign
from hgpo_gym.advantages.result import Advantages, as_advantages
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.rollouts.rollout import Rollout
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.critic.critic import Critic, explained_variance
from hgpo_gym.trainers.critic.settings import CriticSettings
from hgpo_gym.trainers.learners.validate import validate_estimator
from hgpo_gym.trainers.update.diverged import NonFiniteError
from tests.support import small_models, small_runs
from tests.support.small_models import make_policy, weights
from tests.support.small_runs import TINY, numbers, train, whole_and_resumed

PLACES = 5
TRUE_VALUES = np.arange(1, PLACES + 1) / (PLACES + 1)
"""Of the places of a random walk that earns 1 at its right end (Sutton and Barto, example 6.2)."""
RUNS = {"a table": [*small_runs.SETTINGS, "env.sections=1", "evaluation.every=3"], "a language model": TINY}


def critic_settings(**changes):
    return CriticSettings(**changes)


def make_critic(policy, columns=("value",), seed=0, **changes):
    return Critic(policy, columns, critic_settings(**changes), small_models.settings(), seed)


def test_a_step_that_episodes_share_is_fitted_once_with_the_mean_of_its_targets():
    """Two episodes that begin with one step."""
    critic, seen = make_critic(make_policy()), []
    critic._fit = lambda column, states, value, target, seed: seen.append((states, value, target)) or 0.0
    batch = StepBatch.from_records(
        group=[0] * 4, trajectory=[0, 0, 1, 1], step=[0, 1, 0, 1], reward=[0.0] * 4, observation=["a", "b", "a", "c"],
        history_length=0, response=[3, 4, 3, 5], value=[0.1, 0.2, 0.1, 0.3],
    )  # fmt: skip
    states = {"value": np.array([[0.0], [1.0], [0.0], [2.0]])}
    critic.learn(states, batch, {"value": np.array([1.0, 5.0, 2.0, 6.0])}, (0, 0))
    ((read, value, target),) = seen
    assert (read.tolist(), value.tolist(), target.tolist()) == ([[0], [1], [2]], [0.1, 0.2, 0.3], [1.5, 5, 6])


def random_walks(seed, count):
    """The places of walks from the middle, and what each step earned."""
    generator = np.random.default_rng(seed)
    walks = []
    for _ in range(count):
        place, visited = PLACES // 2, []
        while 0 <= place < PLACES:
            visited.append(place)
            place += 2 * int(generator.integers(2)) - 1
        walks.append((visited, [0.0] * (len(visited) - 1) + [float(place == PLACES)]))
    return walks


def rollout_of(policy, walks):
    """As if the policy had been asked at each place."""
    places = [place for visited, _ in walks for place in visited]
    asked = [Request("place " + "x" * place, ("go", "stay"), context_keys=(hash_text(str(place)) >> 1,))
             for place in range(PLACES)]  # fmt: skip
    responses = policy.generate(asked, Sampling())
    batch = StepBatch.from_records(
        group=[0] * len(places),
        trajectory=np.repeat(np.arange(len(walks)), [len(visited) for visited, _ in walks]).tolist(),
        step=[step for visited, _ in walks for step in range(len(visited))],
        observation=[str(place) for place in places],
        reward=[reward for _, rewards in walks for reward in rewards],
        history_length=0,
    )
    return Rollout(batch, tuple(responses[place].tokens for place in places), (), ()), np.array(places)


POLICIES = {"a table": lambda: TabularPolicy(LogitTable(50), level=0), "a language model": make_policy}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "trace_decay"), [("a table", 0.0), ("a table", 0.95), ("a language model", 0.95)])
def test_values_of_a_random_walk_come_to_what_they_truly_are(kind, trace_decay):
    """From its values at the next place, and from rewards."""
    policy = POLICIES[kind]()
    critic = make_critic(policy, learning_rate=0.003, mini_batch_size=256)
    for iteration in range(100):
        rollout, places = rollout_of(policy, random_walks(iteration, 200))
        states = critic.states(rollout)
        batch = critic.valued(rollout.batch, states)
        targets = assign("gae", batch, gamma=1.0, trace_decay=trace_decay).targets
        metrics = critic.learn(states, batch, targets, (0, iteration))
    found = np.array([batch.extras["value"][places == place].mean() for place in range(PLACES)])
    np.testing.assert_allclose(found, TRUE_VALUES, atol=0.08)
    assert metrics["value_loss"] < 0.25
    assert metrics["value_explained_variance"] > (0.5 if trace_decay == 0 else 0.1)


def test_a_state_is_of_what_was_read_and_not_of_its_batch():
    policy = make_policy()
    asked = [Request("place " + "x" * count, ("go left", "go right", "stay"), seed=(count,)) for count in range(9)]
    records = [response.tokens for response in policy.generate(asked, Sampling())]

    def states(answered, **options):
        return policy.states(records, answered, **{"max_batch_tokens": 10_000, "precision": "float32", **options})

    at_the_prompt = states([0] * 9)
    assert at_the_prompt.shape == (9, 32)
    np.testing.assert_allclose(states([0] * 9, max_batch_tokens=1), at_the_prompt, atol=1e-5)
    longer = [replace(record, prompt_ids=np.append(record.prompt_ids, record.token_ids[:1])) for record in records]
    expected = policy.states(longer, [0] * 9, max_batch_tokens=10_000, precision="float32")
    np.testing.assert_allclose(states([1] * 9), expected, atol=1e-5)
    assert np.abs(states([1] * 9) - at_the_prompt).max(axis=1).min() > 0.01


def test_what_a_critic_learns_does_not_move_the_policy():
    policy = make_policy()
    before, critic = weights(policy), make_critic(policy, epochs=20)
    rollout, _ = rollout_of(policy, random_walks(0, 10))
    states = critic.states(rollout)
    critic.learn(states, critic.valued(rollout.batch, states), {"value": np.ones(len(rollout.batch))}, (0, 0))
    assert critic.valued(rollout.batch, states).extras["value"].mean() > 0.3
    for name, weight in weights(policy).items():
        assert torch.equal(weight, before[name])


def test_a_clip_holds_values_to_those_before():
    policy = make_policy()
    rollout, _ = rollout_of(policy, random_walks(0, 10))
    reached = {}
    for clip in (None, 0.05):
        critic = make_critic(policy, epochs=200, learning_rate=2e-4, clip=clip)
        states = critic.states(rollout)
        critic.learn(states, critic.valued(rollout.batch, states), {"value": np.ones(len(rollout.batch))}, (0, 0))
        reached[clip] = critic.valued(rollout.batch, states).extras["value"].mean()
    assert reached[None] > 0.5
    assert 0.05 < reached[0.05] < 0.2  # Adam's momentum takes it a little beyond


def test_rows_without_a_target_teach_nothing():
    policy = make_policy()
    rollout, places = rollout_of(policy, random_walks(0, 30))
    critic, other = make_critic(policy, epochs=20), make_critic(policy, epochs=20)
    states = critic.states(rollout)
    batch = critic.valued(rollout.batch, states)
    target = np.where(places == 0, np.nan, 1.0)
    assert critic.learn(states, batch, {"value": target}, (0, 0))["value_explained_variance"] == 0.0
    kept = np.flatnonzero(places != 0)
    part = {"value": states["value"][kept]}
    other._fit("value", part["value"], np.zeros(len(kept)), np.ones(len(kept)), (18, 0, 0, 0))
    for one, same in zip(critic.state_dict()["value"]["network"].values(),
                         other.state_dict()["value"]["network"].values(), strict=True):  # fmt: skip
        assert torch.equal(one, same)


def test_a_loss_that_is_no_number_is_named():
    policy = make_policy()
    rollout, _ = rollout_of(policy, random_walks(0, 3))
    critic = make_critic(policy, epochs=50, learning_rate=1e30, max_grad_norm=1e30)
    states = critic.states(rollout)
    with pytest.raises(NonFiniteError, match="The critic's loss of value is"):
        critic.learn(states, critic.valued(rollout.batch, states), {"value": np.ones(len(rollout.batch))}, (0, 0))


def test_explained_variance_is_1_for_the_targets_0_for_their_mean_and_below_for_worse():
    target = np.array([0.0, 1.0, 2.0])
    assert explained_variance(target, target) == 1.0
    assert explained_variance(np.ones(3), target) == 0.0
    assert explained_variance(-target, target) == -3.0
    assert explained_variance(target, np.ones(3)) == 0.0


@pytest.mark.parametrize("base", RUNS.values(), ids=RUNS)
def test_a_resumed_run_has_the_numbers_of_an_undisturbed_one(tmp_path, base):
    whole, resumed = whole_and_resumed(tmp_path, "algo=gae", "evaluation.every=2", base=base)
    assert numbers(resumed) == numbers(whole)
    assert len({line["value_loss"] for line in read_metrics(whole)}) == 4
    states = [torch.load(run / "checkpoints" / "iteration_0004" / "critic.pt") for run in (resumed, whole)]
    for one, same in zip(*(state["value"]["network"].values() for state in states), strict=True):
        assert torch.equal(one, same)
        assert one.any()


def test_others_have_no_critic(tmp_path):
    train(tmp_path, "algo=grpo", "trainer.iterations=1")
    assert not (tmp_path / "checkpoints" / "iteration_0001" / "critic.pt").exists()
    assert not [name for line in read_metrics(tmp_path) for name in line if "value" in name]


def test_a_critic_goes_with_samplers_that_look_at_advantages_with_trees_and_with_teams(tmp_path):
    for name, settings in {
        "dynamic": ["sampler=dynamic", "sampler.rounds=2"],
        "tree": ["sampler=tree", "sampler.trees=2", "sampler.leaves=2"],
        "team": ["team=planner_actor", "team.plans=[red,blue]"],
    }.items():
        train(tmp_path / name, "algo=gae", "env.sections=1", "trainer.iterations=2", *settings)
        assert read_metrics(tmp_path / name)[-1]["value_loss"] > 0


@pytest.mark.parametrize("algo", ["salt", "progpo", "empg"])
def test_an_estimator_that_builds_on_one_with_a_critic_has_it_too(tmp_path, algo):
    train(tmp_path, f"algo={algo}", "algo.base=gae", "env.sections=1", "trainer.iterations=2")
    assert read_metrics(tmp_path)[-1]["value_loss"] > 0
    restarts = small_runs.settings(tmp_path, f"algo={algo}", "algo.base=gae", "sampler=restarts")
    assert not validate_estimator(restarts).targets  # they give the values


def test_an_estimator_that_gives_no_targets_gets_no_critic(tmp_path):
    with pytest.raises(
        ValueError, match="Estimator 'vineppo' needs the column 'value', which this batch does not have"
    ):
        validate_estimator(small_runs.settings(tmp_path, "algo=vineppo", "sampler=in_order"))
    assert list(validate_estimator(small_runs.settings(tmp_path, "algo=gae")).targets) == ["value"]
    restarts = ["sampler=restarts", "sampler.gamma=1.0"]
    assert not validate_estimator(small_runs.settings(tmp_path, "algo=gae", *restarts)).targets  # they give the values


def test_targets_that_cannot_be_are_named():
    with pytest.raises(ValueError, match=r"Estimator 'mine': the targets of value are no \(2,\) numbers or NaN"):
        as_advantages(Advantages(np.zeros(2), targets={"value": np.array([np.inf, 0.0])}), "mine", 2)
