"""Whole runs with samplers, shapings and teams: they count what they play, and resumed ones have the same numbers."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from hgpo_gym import register
from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.statistics import mean_over_copies
from hgpo_gym.envs.signpost_maze import SignpostMazeEnv
from hgpo_gym.rollouts import conversations, saved
from hgpo_gym.rollouts.recording import rewards_of
from hgpo_gym.rollouts.rollout import EpisodeOutcome
from hgpo_gym.rollouts.samplers import spread
from hgpo_gym.runs.directory import read_metrics
from hgpo_gym.trainers.warm_start.episodes import IMITATED_ALONE
from tests.support.small_runs import SETTINGS, numbers, train, whole_and_resumed

RUNS = {
    "dynamic": ["sampler=dynamic", "sampler.rounds=3", "algo=grpo"],
    "pods": ["sampler=pods", "sampler.keep=2"],
    "gaussian": ["sampler=gaussian", "sampler.episodes=3", "sampler.iterations=4"],
    "pools": ["sampler=pools"],
    "stages": ["sampler=stages", "sampler.stages=[[6,2],[null,null]]"],
    "tree": ["sampler=tree", "sampler.trees=2", "sampler.leaves=2", "algo=tree_grpo"],
    "restarts": ["algo=vineppo", "sampler.restarts=2", "sampler.share=0.5"],
    "cost": ["shaping=cost", "shaping.costs={go.back:0.1}"],
    "planner_actor": ["team=planner_actor", "team.every=3", "team.plans=[red,blue,green]", "algo=dr_mas"],
    "stale": ["rollout.staleness=2"],
    "features": ["model=features", "warmstart.source=none", "trainer.kl_coef=0.01"],
    "best_plan": ["recipe=best_plan", "team.plans=[red,blue]", "memory.history_length=0", "rollout.group_size=8"],
    "actor_checker": ["team=actor_checker", "team.hints=[again]", "algo=dr_mas"],
}


@pytest.mark.smoke
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_a_resumed_run_has_the_numbers_of_an_undisturbed_one(tmp_path, options):
    whole, resumed = whole_and_resumed(tmp_path, *options)
    assert numbers(resumed) == numbers(whole)
    assert outcomes(resumed) == outcomes(whole)


def test_stale_rollouts_are_those_of_the_weights_of_that_many_updates_ago(tmp_path):
    """Without warm-up the first update is a full one, so that the second rollout is another, unless it is stale."""
    still, stale, fresh = (
        responses(tmp_path / name, f"trainer.learning_rate={rate}", f"rollout.staleness={staleness}")
        for name, rate, staleness in (("still", 0, 0), ("stale", 0.5, 1), ("fresh", 0.5, 0))
    )
    assert stale[:2] == still[:2]
    assert stale[2] != still[2]
    assert stale[0] == fresh[0]
    assert stale[1] != fresh[1]


def responses(run_dir, *options):
    """Return a run's responses, by iteration."""
    train(
        run_dir, "trainer.iterations=3", "trainer.warmup_steps=0", "env.sections=1", "env.max_episode_steps=24",
        *options,
    )  # fmt: skip
    return [saved.load(run_dir / "rollouts", iteration).actions for iteration in (1, 2, 3)]


@pytest.mark.parametrize("options", [[], ["sampler=pools"], ["sampler=dynamic", "algo=grpo"]], ids=" ".join)
def test_a_run_may_train_on_some_tasks_alone_and_be_evaluated_on_the_same(tmp_path, options):
    some = ["rollout.train_tasks=3", "evaluation.split=train", "evaluation.tasks=3"]
    train(tmp_path, "env.split=train", *some, *options)
    tasks = gymnasium.make("hgpo_gym/SignpostMaze-v0", sections=2, split="train").unwrapped.task_ids
    assert len(tasks) > 3
    expected = {tasks[place] for place in spread(len(tasks), 3)}
    rollouts = [saved.load(tmp_path / "rollouts", iteration) for iteration in (1, 2, 3, 4)]
    assert {episode.task_id for rollout in rollouts for episode in rollout.episodes} == expected
    transcript = conversations.read(next((tmp_path / "evaluations").iterdir()))
    assert {conversation.task_id for conversation in transcript} == expected


def outcomes(run_dir):
    return [json.loads(line)["outcomes"] for line in (run_dir / "history.jsonl").read_text().splitlines()]


def test_what_dynamic_plays_is_counted_and_round_0_is_everybodys(tmp_path):
    train(tmp_path / "dynamic", "sampler=dynamic", "algo=grpo", "trainer.iterations=1")
    train(tmp_path / "in_order", "algo=grpo", "trainer.iterations=1")
    (dynamic,), (plain,) = (read_metrics(tmp_path / name) for name in ("dynamic", "in_order"))
    for name in ("success", "episode_return", "episode_length", "valid_action_rate"):
        assert dynamic[name] == plain[name]
    assert dynamic["rounds"] > plain["rounds"] == 1
    assert dynamic["steps"] == dynamic["steps_so_far"] > plain["steps"]
    assert dynamic["episodes"] > plain["episodes"] == 8
    assert dynamic["groups_kept"] == plain["groups_kept"] == 2


def test_a_shaping_changes_what_is_learned_from_and_not_what_is_reported(tmp_path):
    train(tmp_path / "shaped", *RUNS["cost"], "trainer.iterations=1")
    train(tmp_path / "plain", "trainer.iterations=1")
    (shaped,), (plain,) = (read_metrics(tmp_path / name) for name in ("shaped", "plain"))
    for name in ("success", "episode_return", "episode_length", "steps"):
        assert shaped[name] == plain[name]
    assert shaped["advantage_std"] != plain["advantage_std"]
    kept, other = (saved.load(tmp_path / name / "rollouts", 1) for name in ("shaped", "plain"))
    assert kept.environment_reward.tolist() == other.batch.reward.tolist() != kept.batch.reward.tolist()
    assert other.environment_reward is None


def test_measuring_before_training_counts_as_played(tmp_path):
    train(tmp_path / "run", *RUNS["gaussian"], "trainer.iterations=1")
    (line,) = read_metrics(tmp_path / "run")
    state = json.loads((tmp_path / "run" / "checkpoints" / "iteration_0001" / "state.json").read_text())
    measured, steps, episodes, tokens, seconds = state["learner"]["measured"]
    assert episodes == 4 * len(measured)
    assert line["episodes"] == episodes + line["first_round_episodes"]
    assert line["steps"] > steps > 0
    assert line["tokens"] > tokens > 0
    assert line["seconds_rollout"] > seconds > 0


def test_metrics_of_a_tree_count_a_shared_step_once(tmp_path):
    settings = [*RUNS["tree"], "algo=reinforce_pp", "env.sections=1", "trainer.iterations=1"]
    train(tmp_path, *settings, "checkpoint.rollouts_every=1")
    (line,) = read_metrics(tmp_path)
    seconds = sum(line[f"seconds_{part}"] for part in ("rollout", "advantage", "update"))
    batch = saved.load(tmp_path / "rollouts", 1).batch
    assert len(batch.distinct) < len(batch)
    tokens = len(batch.distinct) * (line["prompt_tokens"] + line["response_tokens"])  # all of a table's have one length
    assert line["tokens_per_second"] * seconds == pytest.approx(tokens)
    credit = mean_over_copies(batch, estimate("reinforce_pp", batch))
    assert line["advantage_mean"] == pytest.approx(credit[batch.distinct].mean(), abs=1e-9)
    assert line["advantage_std"] == pytest.approx(credit[batch.distinct].std())
    assert line["advantage_std"] != pytest.approx(credit.std())


class Turns(SignpostMazeEnv):
    """The maze, which says of each step what it was for and what it earned by itself."""

    def take_action(self, action):
        turn = super().take_action(action)
        fields = {"tag": int(action == "walk on"), "tag_reward": 0.5, "turn_reward": 1}
        return replace(turn, extras={**turn.extras, **fields})


register("hgpo_gym_tests/Turns-v0", Turns, max_episode_steps=10, description="for tests")


@pytest.mark.parametrize(("algo", "columns"), [("rlvmr", {"tag", "tag_reward"}), ("turn_rewards", {"turn_reward"})])
def test_what_an_environment_says_of_a_step_is_recorded_for_the_estimator_that_needs_it(tmp_path, algo, columns):
    once = [f"algo={algo}", "trainer.iterations=1", "checkpoint.rollouts_every=1"]
    train(tmp_path / "run", *once, "env.id=hgpo_gym_tests/Turns-v0")
    extras = saved.load(tmp_path / "run" / "rollouts", 1).batch.extras
    assert columns <= extras.keys()
    assert all(len(np.unique(extras[name])) == (2 if name == "tag" else 1) for name in columns)
    with pytest.raises(ValueError, match=f"^algo={algo}: the column '{min(columns)}' is recorded of .* has no '"):
        train(tmp_path / "none", *once)
    assert not (tmp_path / "none").exists()


def test_a_team_whose_model_has_imitated_one_agent_is_warned(tmp_path, capsys):
    small = ["model=tiny", "model.layers=1", "model.hidden_size=32", "warmstart.episodes=4", "warmstart.epochs=1"]
    once = [*small, "trainer.iterations=1", "evaluation.every=0", "evaluation.decoding_seeds=1", "algo=dr_mas"]
    team = ["engine.constrain=admissible", *RUNS["planner_actor"]]
    message = IMITATED_ALONE.format("planner_actor")
    for name, settings, expected in (
        ("alone", ["team=solo"], False),
        ("team", team, True),
        ("new", [*team, "warmstart.source=none"], False),
    ):
        train(tmp_path / name, *once, *settings)
        assert (message in capsys.readouterr().out) == expected


@pytest.mark.parametrize(
    "options",
    [
        ["algo=salt", "algo.base=dvao"],
        ["algo=progpo", "algo.base=salt", "+algo.base_options.base=empg"],
    ],
    ids=["what one builds on", "what that builds on"],
)
def test_a_run_records_what_its_estimator_needs(tmp_path, options):
    train(tmp_path, *options)
    assert len(read_metrics(tmp_path)) == 4


@pytest.mark.parametrize("estimator", ["crbc", "nested_bellman"])
@pytest.mark.parametrize(
    "sampler",
    [
        ["sampler=tree", "sampler.trees=2", "sampler.leaves=2"],
        [
            "sampler=best_plan", "sampler.trials=2", "sampler.executions=2", "team=planner_actor",
            "team.plans=[red,blue]",
        ],
    ],
    ids=["tree", "best_plan"],
)  # fmt: skip
def test_estimators_that_count_visits_go_with_samplers_whose_episodes_share_steps(tmp_path, estimator, sampler):
    train(tmp_path, f"algo={estimator}", "env.sections=1", "trainer.iterations=2", *sampler)
    batch = saved.load(tmp_path / "rollouts", 2).batch
    assert len(batch.distinct_rows) < len(batch)
    assert 0 <= read_metrics(tmp_path)[1]["advantage_zero_share"] < 1


def test_rewards_of_an_episode():
    won, lost = EpisodeOutcome("a", "", True, 10.0, 4, 3), EpisodeOutcome("a", "", False, -1.0, 10, 5)
    assert rewards_of(won, 10) == {"success": 1.0, "return": 10.0, "length": 0.6, "validity": 0.75}
    assert rewards_of(lost, 10) == {"success": 0.0, "return": -1.0, "length": 0.0, "validity": 0.5}


def test_the_vector_of_rewards_has_a_row_a_step(tmp_path):
    train(tmp_path, "algo=dvao", "algo.rewards=[validity,success]", "checkpoint.rollouts_every=1")
    batch = saved.load(tmp_path / "rollouts", 1).batch
    assert batch.extras["reward_vector"].shape == (len(batch), 2)
    np.testing.assert_array_equal(batch.extras["reward_vector"][:, 1], batch.success)


def test_the_share_of_the_step_limit_is_of_the_environments_limit_by_default(tmp_path):
    base = [setting for setting in SETTINGS if "max_episode_steps" not in setting]
    lengths = []
    for place, limit in enumerate(("env.max_episode_steps=null", "~env.max_episode_steps", "env.max_episode_steps=24")):
        folder = tmp_path / str(place)
        train(folder, "algo=dvao", limit, "algo.rewards=[length]", base=base)
        batches = [saved.load(folder / "rollouts", iteration).batch for iteration in range(1, 5)]
        lengths.append([batch.extras["reward_vector"].tolist() for batch in batches])
    assert lengths[0] == lengths[1] == lengths[2]
    assert any(length != 0 for batch in lengths[0] for (length,) in batch)


def test_the_entropy_is_that_of_the_weights_before_the_update(tmp_path):
    """Not of what was drawn: answers to one context have one entropy, in the first iteration that of an even choice."""
    train(tmp_path, "algo=empg", "checkpoint.rollouts_every=1", "trainer.learning_rate=1")
    first, last = (saved.load(tmp_path / "rollouts", iteration).batch for iteration in (1, 4))
    choices = np.exp(first.extras["entropy"])
    np.testing.assert_allclose(choices, choices.round(), atol=1e-5)
    assert len(np.unique(choices.round())) > 1
    entropies = last.extras["entropy"]
    assert np.ptp(np.abs(np.exp(entropies) - np.exp(entropies).round())) > 0.01
    contexts, context_of_row = np.unique(last.context_keys, axis=0, return_inverse=True)
    assert len(contexts) < len(last) / 2
    for context in range(len(contexts)):
        assert np.ptp(entropies[context_of_row == context]) < 1e-6


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (
            ["env.split=all"],
            "Of the 3 tasks of evaluation.split=test, 3 are trained on too: they are in env.split=all.",
        ),
        (["env.split=train"], ""),
        (["env.split=train", "evaluation.split=all"], ""),
        (["env.split=test"], ""),
    ],
)
def test_an_evaluation_on_training_tasks_is_a_warning(splits, expected, tmp_path, capsys):
    train(tmp_path, *splits, "trainer.iterations=1", "evaluation.every=0")
    output = " ".join(capsys.readouterr().out.split())
    assert expected in output if expected else "trained on too" not in output
