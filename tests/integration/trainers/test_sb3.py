"""Baselines of Stable-Baselines3: they learn, resume to the same numbers, and stand beside the others in a report."""

import json
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch

from hgpo_gym.cli.main import main
from hgpo_gym.config.compose import load_run
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.envs.features import TextFeatures
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies.base import Request, Sampling
from hgpo_gym.processes import Processes
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.samplers import tasks_in_order
from hgpo_gym.runs.directory import read_metrics, read_summary
from hgpo_gym.trainers.learners.sb3.episodes import EpisodesVecEnv
from hgpo_gym.trainers.learners.sb3.networks import ABSENT, ActionScorer
from hgpo_gym.trainers.learners.sb3.policy import Sb3Policy
from hgpo_gym.trainers.run import Run
from tests.support.small_runs import SETTINGS, numbers, settings, train, whole_and_resumed

FEATURES = TextFeatures(size=32, actions=5, action_size=16)
EASY = ["env.sections=1", "algo.features.actions=4", "rollout.num_tasks=4", "rollout.group_size=4"]
ALGORITHMS = {
    "sb3_ppo": ["algo=sb3_ppo", *EASY],
    "sb3_dqn": ["algo=sb3_dqn", *EASY, "algo.learning_starts=100", "algo.exploration_iterations=4"],
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_success_more_than_doubles(algorithm, tmp_path):
    """One section of the maze, three doors, time for a mistake or two."""
    overrides = ["algo.learning_rate=3e-3", "algo.batch_size=32", "trainer.iterations=20", "evaluation.every=0"]
    train(
        tmp_path, *ALGORITHMS[algorithm], *overrides, "env.split=all", "evaluation.split=all", "env.max_episode_steps=6"
    )
    success = [line["success"] for line in read_metrics(tmp_path)]
    assert 0 < np.mean(success[:2]) < 0.45
    assert np.mean(success[-2:]) > 2 * np.mean(success[:2])


@pytest.mark.promise("Runs by Stable-Baselines3 resume to the same numbers.")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_resumed_run_goes_on_with_the_same_numbers(algorithm, tmp_path):
    whole, resumed = whole_and_resumed(tmp_path, *ALGORITHMS[algorithm])
    assert [line["iteration"] for line in numbers(whole)] == [1, 2, 3, 4]
    assert numbers(whole) == numbers(resumed)
    assert read_summary(whole)["success_after"] == read_summary(resumed)["success_after"]


def test_an_iteration_plays_the_tasks_of_the_schedule_to_their_end(tmp_path):
    overrides = [*ALGORITHMS["sb3_ppo"], "trainer.iterations=1", "rollout.train_tasks=2"]
    with Run(settings(tmp_path, *overrides), Progress()) as run:
        assert len(run.learner.task_ids) == 2
        tasks = tasks_in_order(run.learner.task_ids, seed=0, iteration=0, count=4)
        run.train()
    episodes = run.learner.policy.episodes.episodes
    assert Counter(group[0].task_id for group in episodes) == {task: 4 * tasks.count(task) for task in tasks}
    assert all(group and len({episode.task_id for episode in group}) == 1 for group in episodes)
    assert all(sum(episode.steps for episode in group) <= 10 for group in episodes)
    (line,) = read_metrics(tmp_path)
    assert line["steps"] == line["steps_so_far"] == 4 * 4 * 10
    assert line["success"] == np.mean([group[0].won for group in episodes])
    assert line["valid_action_rate"] == 1.0


def test_omitted_actions_are_counted():
    """Not in what is seen at the end of an episode, or after the last step."""
    env = ContextWrapper(TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, split="test", max_episode_steps=3))
    episodes = EpisodesVecEnv(2, TextFeatures(size=8, actions=1, action_size=2), 1.0)
    episodes.play(env, env.unwrapped.task_ids[:2], (0,))
    episodes.reset()
    for _ in range(4):
        episodes.step(np.zeros(2, dtype=np.int64))
    # At a sign there is one action, in the corridor two, in the hall four; the fourth step begins a new episode.
    assert episodes.actions_left_out == 2 * (0 + 1 + 3 + 0)


def test_a_score_belongs_to_the_action_and_not_to_its_place():
    scorer = ActionScorer(FEATURES, hidden_size=8)
    features = FEATURES({"prompt": "a hall"}, ("open red door", "open blue door", "go back"))
    turned = FEATURES({"prompt": "a hall"}, ("go back", "open red door", "open blue door"))
    with torch.device("meta"):  # where a tensor lands that does not say that it belongs to the others
        one, other = scorer(torch.from_numpy(np.stack([features, turned])).float())
    assert torch.allclose(one[:3], other[[1, 2, 0]])
    assert len(set(one[:3].tolist())) == 3
    assert one[3:].tolist() == [ABSENT, ABSENT]


def new_policy(run):
    return Sb3Policy.initial(run.algo, run.rollout.num_tasks * run.rollout.group_size, run.env.step_limit, run.seed)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_available_actions_are_chosen(algorithm, tmp_path):
    policy = new_policy(settings(tmp_path, *ALGORITHMS[algorithm]))
    responses = ("walk on", "go back")
    requests = [Request("You are in a bare corridor.", responses, seed=(seed,)) for seed in range(50)]
    drawn = [response.text for response in policy.generate(requests, Sampling())]
    assert set(drawn) == (set(responses) if algorithm == "sb3_ppo" else {drawn[0]})
    assert drawn[7] == policy.generate(requests[7:8], Sampling())[0].text
    if algorithm == "sb3_dqn":
        policy.algorithm.exploration_rate = 1.0
        seen = np.repeat(policy.episodes.features({"prompt": "a corridor"}, responses)[None], 100, axis=0)
        assert set(policy.algorithm.predict(seen)[0].tolist()) == {0, 1}


def test_they_are_evaluated_and_compared_as_the_others(capsys, tmp_path):
    out = tmp_path / "out"
    algos = "algos=[sb3_ppo,grpo,hgpo]"
    settings = [setting for setting in (*SETTINGS, *EASY) if not setting.startswith("algo.")]
    main(["compare", *settings, algos, "jobs=1", f"out={out}"])
    text = (out / "report.md").read_text()
    assert "sb3_ppo: by Stable-Baselines3, with a network of its own" in text
    assert "figures/learning_curve_over_steps" in text
    assert list((out / "figures").glob("learning_curve_over_steps.*"))
    run = out / "sb3_ppo-seed0"
    assert "stable_baselines3" in json.loads((run / "launches.jsonl").read_text())["versions"]
    capsys.readouterr()
    main(["eval", f"run={run}", f"out={tmp_path / 'evaluation.json'}"])
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert (evaluation.pop("run"), evaluation.pop("changed"), evaluation.pop("policy")) == (str(run), {}, "model")
    assert evaluation.pop("env") == "hgpo_gym/SignpostMaze-v0"
    assert evaluation.items() <= read_summary(run)["evaluations"][-1].items()


def test_the_default_step_limit_is_the_environments(tmp_path):
    train(tmp_path, *ALGORITHMS["sb3_ppo"], "trainer.iterations=1", "env.max_episode_steps=null")
    assert read_metrics(tmp_path)[0]["steps"] == 4 * 4 * 24


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"Unknown option of sb3_ppo 'clip_rnge'\. Did you mean 'clip_range'"):
        new_policy(load_run(["algo=sb3_ppo", "+algo.clip_rnge=0.1"]))
    policy = new_policy(settings(tmp_path, *ALGORITHMS["sb3_ppo"]))
    with pytest.raises(ValueError, match="chooses among admissible actions, and this environment names none"):
        policy.generate([Request("Say something.")], Sampling())
    with pytest.raises(FileNotFoundError, match=r"expected sb3\.zip"):
        Sb3Policy.load(load_run(["algo=sb3_ppo"]).algo, 1, tmp_path)
    without_list = load_run(["algo=sb3_ppo", "env=secret_word", f"run_dir={tmp_path / 'word'}"])
    with pytest.raises(ValueError, match="this environment names none"), Run(without_list, Progress()):
        pass
    several = Processes()
    several.count = 2
    with pytest.raises(ValueError, match="algo=sb3_ppo trains in one process"):
        Run(settings(tmp_path / "run", "algo=sb3_ppo"), Progress(), several)
