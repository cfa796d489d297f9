"""Prompts and responses in saved rollouts, in evaluations, and in the files of `hgpo-gym eval transcripts=`."""

import gzip
import io
import json

import pytest
from rich.console import Console

from hgpo_gym.analysis.inspection import inspect_evaluation
from hgpo_gym.cli.main import main
from hgpo_gym.rollouts import conversations
from hgpo_gym.rollouts import saved as kept_rollouts
from hgpo_gym.rollouts.evaluation import spread
from hgpo_gym.runs.directory import read_summary
from tests.integration.trainers.test_training import SMALL
from tests.support.commands import run as command
from tests.support.small_runs import train

UNTRAINED = [
    "model=tiny", *SMALL, "trainer.kl_coef=0", "warmstart.source=none", "engine.constrain=none", "prompt=instruct",
    "rollout.max_new_tokens=6", "trainer.iterations=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """An iteration of a model that has no idea of the form of a response."""
    path = tmp_path_factory.mktemp("runs") / "untrained"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        train(path, *UNTRAINED, "checkpoint.transcripts=6")
    return path


def test_rollouts_keep_prompts_and_raw_responses_of_the_first_episodes(untrained):
    rollout = kept_rollouts.load(untrained / "rollouts", 1)
    assert len(rollout.episodes) == 8
    assert len(rollout.conversations) == 6
    for index, one in enumerate(rollout.conversations):
        assert len(one.exchanges) == rollout.episodes[index].steps
        assert one.task == rollout.tasks[index]
        for step, exchange in enumerate(one.exchanges):
            [row] = [
                row
                for row, place in enumerate(zip(rollout.batch.trajectory, rollout.batch.step, strict=True))
                if place == (index, step)
            ]
            assert rollout.observations[row] in exchange.prompt
            assert exchange.prompt.startswith("You")
            assert exchange.action == rollout.actions[row] == ""
            assert exchange.response
    assert any(exchange.truncated for one in rollout.conversations for exchange in one.exchanges)


def test_inspect_shows_the_response_in_which_no_action_was_found(untrained, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    rollout = kept_rollouts.load(untrained / "rollouts", 1)
    status, output, _ = command(capsys, "inspect", untrained)
    assert status == 0
    assert "without an action" in output
    page = tmp_path / "group.html"
    output = command(capsys, "inspect", untrained, "--task", "1", "--step", "2.3", "--html", page)[1]
    exchange = rollout.conversations[1].exchanges[2]
    assert "Response of 2.3 (no action was found in it; truncated; reward 0):" in output
    assert exchange.prompt.splitlines()[0] in output
    assert page.read_text().count("Response of ") == 1 + sum(len(one.exchanges) for one in rollout.conversations[:4])
    output = command(capsys, "inspect", untrained, "--task", "2", "--step", "4.1")[1]
    assert "were not kept: checkpoint.transcripts kept 6 episodes" in output


def test_evaluations_keep_them_too(untrained, capsys, tmp_path):
    assert sorted(path.name for path in (untrained / "evaluations").iterdir()) == [
        "iteration_0000.jsonl.gz", "iteration_0001.jsonl.gz"
    ]  # fmt: skip
    with gzip.open(untrained / "evaluations" / "iteration_0001.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == 2 == read_summary(untrained)["evaluations"][-1]["episodes"]
    assert lines[0].keys() == {"task_id", "task", "won", "exchanges"}
    assert lines[0]["exchanges"][0].keys() == {"prompt", "response", "action", "truncated", "reward"}
    shown = io.StringIO()
    inspect_evaluation(untrained, iteration=1, task="1", html=None, console=Console(file=shown, width=300))
    assert lines[0]["task_id"] in shown.getvalue()
    assert "Response of 1.1 (no action was found in it" in shown.getvalue()
    assert command(capsys, "inspect", untrained, "--evaluation")[0] == 0
    status, _, error = command(capsys, "inspect", untrained, "--evaluation", "--iteration", "5")
    assert status == 2
    assert "there are iteration_0000.jsonl.gz, iteration_0001.jsonl.gz" in error.replace("\n", "")
    status, _, error = command(capsys, "inspect", untrained, "--evaluation", "--task", "9")
    assert status == 2
    assert "the episodes 1 to 2 are kept" in error


def test_no_transcript_is_saved_at_0_and_all_are_at_null(tmp_path):
    train(tmp_path / "none", "checkpoint.transcripts=0", "trainer.iterations=1")
    assert not list((tmp_path / "none").rglob("*.jsonl.gz"))
    train(tmp_path / "all", "checkpoint.transcripts=null", "trainer.iterations=1")
    assert len(kept_rollouts.load(tmp_path / "all" / "rollouts", 1).conversations) == 8


def test_repeated_rollouts_replace_their_transcripts(tmp_path):
    train(tmp_path, "trainer.iterations=2")
    kept_rollouts.forget_after(tmp_path / "rollouts", 1)
    assert sorted(path.name for path in (tmp_path / "rollouts").iterdir()) == [
        "iteration_0001.json.gz", "transcripts_0001.jsonl.gz"
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["expert", "random"])
def test_any_policy_leaves_transcripts_as_lines_and_as_a_page(policy, capsys, tmp_path):
    status, output, _ = command(
        capsys, "eval", f"policy={policy}", "env=signpost_maze", "env.sections=2", "evaluation.tasks=2",
        "evaluation.decoding_seeds=2", f"transcripts={tmp_path / 'new' / 'said'}",
    )  # fmt: skip
    assert status == 0
    assert json.loads(output[output.index("\n{") :])["tasks"] == 2
    lines = [json.loads(line) for line in (tmp_path / "new" / "said" / "transcripts.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert lines[0]["task_id"] == lines[2]["task_id"] != lines[1]["task_id"]
    page = (tmp_path / "new" / "said" / "transcripts.html").read_text()
    assert page.count("<details>") == 4
    for line in lines:
        assert line["won"] or policy == "random"
        for exchange in line["exchanges"]:
            assert exchange["action"] == exchange["response"]
            assert exchange["prompt"]
    assert "script" not in page
    if policy == "expert":
        assert [exchange["reward"] for exchange in lines[0]["exchanges"]][-1] == 10.0


def test_the_result_is_printed_last_and_however_the_transcripts_end(capsys, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("hgpo_gym.cli.evaluation.write_transcripts", full)
    call = ["eval", "policy=random", "env=signpost_maze", "env.sections=2", "evaluation.tasks=2"]
    with pytest.raises(OSError, match="no space left"):
        main([*call, f"transcripts={tmp_path / 'said'}", f"out={tmp_path / 'result.json'}"])
    output = capsys.readouterr().out
    assert json.loads(output[output.index("\n{") :]) == json.loads((tmp_path / "result.json").read_text())


def test_what_others_wrote_is_refused_by_name(tmp_path):
    path = tmp_path / "iteration_0001.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"task_id": 1}\n'))
    with pytest.raises(ValueError, match=rf"{path} is damaged"):
        conversations.read(path)


def test_some_tasks_are_spread_over_the_split():
    assert spread(10, None) == spread(10, 10) == spread(10, 99) == list(range(10))
    assert spread(10, 5) == [0, 2, 4, 6, 8]
    assert spread(7, 3) == [0, 2, 4]
    assert spread(9, 1) == [0]
