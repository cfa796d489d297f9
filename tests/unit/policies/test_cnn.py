"""The network that reads maps: what a map is, scores that no neighbour changes, and the trainer's promises."""

from functools import partial

import numpy as np
import pytest
import torch

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import CannotRespondError, StepContext
from hgpo_gym.policies.cnn import CnnPolicy, MapNetwork, read_map
from hgpo_gym.policies.likelihood import score
from hgpo_gym.runs.directory import read_metrics
from tests.support import small_runs
from tests.support.commands import run
from tests.support.small_runs import numbers, whole_and_resumed

SMALL = [
    "env=sokoban", "env.size=5", "env.inner_walls=1", "env.min_moves=1", "env.levels=24", "env.split=all",
    "evaluation.split=all", "env.max_episode_steps=12", "model=cnn", "model.channels=16",
    "rollout.num_tasks=8", "rollout.group_size=8", "evaluation.decoding_seeds=2",
]  # fmt: skip
train = partial(small_runs.train, base=SMALL)
ROOM = "# # # #\n# @ $ #\n# - . #\n# # # #"
WIDE = "#####\n#@$.#\n#####"


def ask(observation, actions=("up", "down", "right"), seed=0):
    step_context = StepContext("", observation, actions)
    return Request("", actions, seed=(seed,), choices=actions, step_context=step_context)


@pytest.fixture
def policy():
    """One whose scores differ."""
    network = MapNetwork(channels=8, layers=2, seed=0)
    network.actions.data.normal_(generator=torch.Generator().manual_seed(1))
    return CnnPolicy(network)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (ROOM, ["####", "#@$#", "#-.#", "####"]),
        (WIDE, ["#####", "#@$.#", "#####"]),
        (f"Nothing moves that way.\n{ROOM}", ["####", "#@$#", "#-.#", "####"]),
        (f"ab\ncd\n\n{WIDE}\nYou are here.", ["#####", "#@$.#", "#####"]),
        ("ä#\n#@", ["\x7f#", "#@"]),
    ],
)
def test_a_map_is_lines_of_as_many_cells(text, rows):
    assert read_map(text).tolist() == [[ord(sign) for sign in row] for row in rows]


@pytest.mark.parametrize("text", ["", "You are here.", "#####", "a b c\nd e", "a\nb\nc"])
def test_a_text_without_a_map_is_refused(text):
    with pytest.raises(CannotRespondError, match="model=cnn reads a map"):
        read_map(text)


def test_scores_are_those_of_a_map_by_itself_whatever_stands_beside_it(policy):
    requests = [ask(ROOM), ask(WIDE, ("right",)), ask("# #\n@ .", ("left", "right"))]
    together = policy.logits(policy.featurize(requests)).double()
    for row, request in enumerate(requests):
        alone = policy.logits(policy.featurize([request]))[0].double()
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=1e-5, atol=1e-6)
        assert torch.isneginf(together[row, len(alone) :]).all()
    assert together[0].std() > 0.01


def test_what_was_never_trained_is_uniform():
    policy = CnnPolicy(MapNetwork(channels=8, layers=2, seed=0))
    (response,) = policy.generate([ask(ROOM)], Sampling())
    assert response.tokens.logprobs[0] == pytest.approx(-np.log(3))


def test_records_hold_the_probabilities_that_responses_were_drawn_with(policy):
    requests = [ask(room, seed=seed) for seed in range(20) for room in (ROOM, WIDE)]
    responses = policy.generate(requests, Sampling(temperature=0.7))
    assert {response.text for response in responses} == {"up", "down", "right"}
    records = [response.tokens for response in responses]
    scored = score(policy, records, temperature=0.7, max_batch_tokens=64)
    np.testing.assert_allclose([one[0] for one in scored], [one.logprobs[0] for one in records], atol=1e-5)


def test_a_policy_is_saved_and_loaded(policy, tmp_path):
    policy.save(tmp_path)
    loaded = CnnPolicy.load(tmp_path)
    torch.testing.assert_close(
        loaded.logits(loaded.featurize([ask(ROOM)])), policy.logits(policy.featurize([ask(ROOM)])), rtol=0, atol=0
    )
    with pytest.raises(FileNotFoundError, match=r"No cnn policy in .*: expected cnn\.safetensors"):
        CnnPolicy.load(tmp_path / "nowhere")


@pytest.mark.slow
def test_it_imitates_the_expert_and_goes_on_from_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    options = ["warmstart.source=expert", "trainer.learning_rate=0.001", "trainer.mini_batch_size=64"]
    summary = train(tmp_path / "run", "trainer.iterations=20", "evaluation.every=0", *options)
    success = [line["success"] for line in read_metrics(tmp_path / "run")]
    assert summary["success_before"] > 0.6
    assert np.mean(success[-10:]) > np.mean(success[:5]) + 0.05


@pytest.mark.slow
def test_what_it_learns_holds_for_levels_that_it_has_not_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    levels = ["env.size=6", "env.levels=200", "env.split=train", "evaluation.split=test", "trainer.iterations=0"]
    imitation = ["warmstart.source=expert", "warmstart.episodes=400", "warmstart.epochs=12"]
    uniform, imitated = train(tmp_path / "uniform", *levels), train(tmp_path / "imitated", *levels, *imitation)
    assert imitated["success_before"] > uniform["success_before"] + 0.2


def test_a_resumed_run_has_the_numbers_of_an_undisturbed_one(tmp_path):
    whole, resumed = whole_and_resumed(tmp_path, "rollout.num_tasks=2", "evaluation.every=2", base=SMALL)
    assert numbers(resumed) == numbers(whole)


@pytest.mark.parametrize("command", ["train", "eval"])
def test_an_environment_without_maps_is_named(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, error = run(capsys, command, "model=cnn", "evaluation.decoding_seeds=1")
    assert status == 2
    assert "model=cnn reads a map" in error
