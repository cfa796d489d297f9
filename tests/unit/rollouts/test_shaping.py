"""Shaping: exact penalties and costs, and nothing but rewards and penalties changed."""

from dataclasses import replace

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch
from hgpo_gym.advantages.columns import needs
from hgpo_gym.config.compose import load_run
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import RandomPolicy, Sampling, TokenRecord
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts import saved
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.shaping import SHAPERS, register_shaping, shape
from hgpo_gym.rollouts.shaping.overlong import overlong_penalty
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.learners.rollout_worker import assign_credit
from tests.support import small_runs
from tests.support.golden import load
from tests.support.small_models import make_policy


def play(policy):
    env = ContextWrapper(
        TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, 3, sections=1, max_episode_steps=6, split="all"), "bare"
    )
    tasks = env.unwrapped.task_ids[:2]
    sampling = Sampling(max_new_tokens=12)
    return collect(env, policy, sampling, task_ids=tasks, seeds=[(0,), (1,)], invalid_action_penalty=0.5)


@pytest.fixture(scope="module")
def rollout():
    return play(make_policy(constrain="none"))


@pytest.fixture
def registered():
    """Registers shapings for a test."""
    names = []

    def add(name, function):
        register_shaping(name, function)
        names.append(name)

    yield add
    for name in names:
        del SHAPERS._all[name]


@pytest.mark.parametrize("case", load("objectives")["samplers"]["overlong_penalty"])
def test_overlong_responses_have_the_golden_penalty(case):
    options = {name: case[name] for name in ("longest", "buffer", "factor")}
    np.testing.assert_allclose(overlong_penalty(np.array(case["lengths"]), **options), case["penalty"], atol=1e-8)


def test_overlong_comes_off_the_reward_of_its_step(rollout):
    batch = shape(Choice("overlong", {"longest": 12, "buffer": 4, "factor": 2.0}), rollout)
    lengths = [len(record.token_ids) for record in rollout.tokens]
    expected = [0.5 * max(0, length - 8) for length in lengths]
    np.testing.assert_allclose(rollout.batch.reward - batch.reward, expected)
    assert max(expected) == 2.0
    np.testing.assert_array_equal(batch.penalty, rollout.batch.penalty)
    with pytest.raises(ValueError, match=r"shaping.buffer=13: choose 1 to 12 tokens"):
        shape(Choice("overlong", {"longest": 12, "buffer": 13}), rollout)
    with pytest.raises(ValueError, match="overlong needs the option longest, which has no default"):
        shape(Choice("overlong", {"buffer": 4}), rollout)
    with pytest.raises(ValueError, match="this policy reports no tokens"):
        shape(Choice("overlong", {"longest": 12, "buffer": 4}), play(RandomPolicy()))


def test_recipe_dapo_normalises_rewards_that_have_the_penalty_in_them(rollout):
    """Eq. 9 and 13 of arXiv 2503.14476: four answers to one question, with correctness of 1, 1, 0, 0 and lengths that
    cost 0, 0.5, 0 and 1, so that the rewards are 1, 0.5, 0 and -1."""
    group, member = np.zeros(4, dtype=np.int64), np.arange(4)
    batch = StepBatch(group, member, group, np.array([1.0, 1.0, 0.0, 0.0]), np.ones((4, 1), np.int64), np.zeros(4))
    ids = np.zeros(20480, dtype=np.int64)
    tokens = tuple(
        TokenRecord(ids[:1], ids[:length], np.zeros(length, np.float32)) for length in (10, 18432, 16384, 20480)
    )
    answered = replace(rollout, batch=batch, tokens=tokens, steps=rollout.steps[:4], episodes=rollout.episodes[:4])
    run = load_run(["recipe=dapo", "rollout.max_new_tokens=20480"])
    shaped, credit = assign_credit(run.algo, run.shaping, answered)
    rewards = np.array([1.0, 0.5, 0.0, -1.0])
    np.testing.assert_allclose(shaped.reward, rewards)
    np.testing.assert_allclose(credit.values, (rewards - 0.125) / (rewards.std(ddof=1) + 1e-6))


def test_costs_come_off_the_reward_where_the_whole_action_matches():
    rollout = play(RandomPolicy())
    batch = shape(Choice("cost", {"costs": {"open .* door": 0.5, "open red door": 1.0, "go back": 0.25}}), rollout)
    prices = [
        0.5 * step.action.startswith("open")
        + 1.0 * (step.action == "open red door")
        + 0.25 * (step.action == "go back")
        for step in rollout.steps
    ]
    assert set(prices) == {0.0, 0.25, 0.5, 1.5}
    np.testing.assert_allclose(rollout.batch.reward - batch.reward, prices)
    np.testing.assert_array_equal(batch.penalty, rollout.batch.penalty)
    with pytest.warns(UserWarning, match="no action of a rollout matches 'open'"):
        shape(Choice("cost", {"costs": {"open": 1.0}}), rollout)
    with pytest.raises(ValueError, match=r"shaping.costs: '\(' is no regular expression"):
        shape(Choice("cost", {"costs": {"(": 1.0}}), rollout)


def test_milestones_are_paid_at_the_step_that_reaches_them():
    rollout = play(RandomPolicy())
    reached = np.arange(len(rollout.steps)) % 3 == 1
    noted = replace(rollout, batch=replace(rollout.batch, extras={"milestone": reached}))
    for options, paid in (({}, 10.0), ({"milestone_reward": 0.5}, 0.5)):
        batch = shape(Choice("milestones", options), noted)
        np.testing.assert_array_equal(batch.reward - rollout.batch.reward, paid * reached)
        np.testing.assert_array_equal(batch.penalty, rollout.batch.penalty)


def test_a_run_records_the_milestones_that_it_pays_for(tmp_path):
    sokoban = ["env=sokoban", "env.held_out=levels", "env.levels=20", "model=features", "trainer.iterations=1"]
    sokoban += ["rollout.num_tasks=8", "rollout.group_size=8", "evaluation.every=0"]
    small_runs.train(tmp_path / "paid", "env.milestones=true", "shaping=milestones", base=sokoban)
    all_saved = saved.load(tmp_path / "paid" / "rollouts", 1)
    paid = all_saved.batch.reward - all_saved.environment_reward
    np.testing.assert_allclose(paid, 10.0 * all_saved.batch.extras["milestone"])
    assert paid.any()
    with pytest.raises(ValueError, match=r"^shaping=milestones: the column 'milestone' is recorded of .* has no 'mil"):
        small_runs.train(tmp_path / "unnamed", "shaping=milestones", base=sokoban)


def test_none_changes_nothing(rollout):
    assert shape(Choice("none"), rollout) is rollout.batch
    with pytest.raises(ValueError, match=r"shaping 'non'. Did you mean 'none'\?"):
        shape(Choice("non"), rollout)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("step_keys", lambda batch: {"context_keys": batch.context_keys + 1}, "changes the column 'context_keys'"),
        ("outcome", lambda batch: {"success": ~batch.success}, "changes the column 'success'"),
        ("extra", lambda batch: {"extras": {**batch.extras, "mine": batch.reward}}, "adds or drops the column 'mine'"),
        (
            "infinite",
            lambda batch: {"reward": batch.reward + np.inf},
            "StepBatch: reward of row 0 is inf: give a finite number",
        ),
    ],
)
def test_a_shaping_that_changes_more_is_refused(rollout, registered, name, change, message):
    registered(name, lambda rollout: replace(rollout.batch, **change(rollout.batch)))
    with pytest.raises(ValueError, match=f"shaping={name}:? {message}"):
        shape(Choice(name), rollout)


def test_a_custom_shaping_has_options_and_leaves_the_episodes_alone(rollout, registered):
    def scaled(rollout, *, by=2.0):
        return replace(rollout.batch, reward=rollout.batch.reward * by, penalty=rollout.batch.penalty * by)

    registered("scaled", scaled)
    episodes = rollout.episodes
    batch = shape(Choice("scaled", {"by": 3.0}), rollout)
    np.testing.assert_array_equal(batch.penalty, 3 * rollout.batch.penalty)
    assert batch.penalty.any()
    assert rollout.episodes is episodes


def test_a_column_that_a_shaping_needs_is_recorded_or_named_before_anything_is_written(registered, tmp_path):
    @needs("reward_vector")
    def of_several(rollout):
        return replace(rollout.batch, reward=rollout.batch.extras["reward_vector"].sum(axis=1))

    @needs("value")
    def of_values(rollout):
        return rollout.batch

    registered("of_several", of_several)
    registered("of_values", of_values)
    small_runs.train(tmp_path / "several", "shaping=of_several", "trainer.iterations=1")
    with pytest.raises(ValueError, match=r"Shaping 'of_values' needs the column 'value'.*the sampler `restarts`"):
        small_runs.train(tmp_path / "values", "shaping=of_values")
    assert not (tmp_path / "values").exists()


def test_a_custom_shaping_may_read_what_no_toy_has(registered, tmp_path):
    def by_words(rollout):
        """The part before the first full stop is read, which `str.index` raises ValueError without."""
        return replace(rollout.batch, reward=np.array([float(step.observation.index(".")) for step in rollout.steps]))

    registered("by_words", by_words)
    small_runs.train(tmp_path, "shaping=by_words", "trainer.iterations=1")
    assert len(read_metrics(tmp_path)) == 1


@pytest.mark.parametrize(("algo", "count"), [("dvao", 1), ("nested_bellman", 1), ("grpo", 0)])
def test_a_run_says_where_its_estimator_does_not_read_the_rewards_that_shaping_changes(tmp_path, capsys, algo, count):
    small_runs.train(tmp_path, f"algo={algo}", "shaping=cost", "shaping.costs={.*:0.1}")
    assert capsys.readouterr().out.count(f"shaping=cost changes rewards, and algo={algo} does not read them") == count
