"""`hgpo-gym verl` on two CPU processes with two servers: a training that is stopped, and goes on.

Half of the task groups are mazes, half ALFWorld's generated games.
Nothing of verl is left out. `cpu_platform` has what it lacks without an accelerator, `tiny_rollout` the servers.
"""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import transformers

from hgpo_gym.advantages import cluster_observations, estimate
from hgpo_gym.cli.main import main
from tests.verl.cpu_run import MAZE, RecordedStep, cpu_command
from tests.verl.maze_model import save_maze_model

PRICE, SIMILARITY = 0.5, 0.7
TWO_ENVIRONMENTS = [
    "trainer.v1.trainer_mode=recorded_colocate_async",
    "++data.hgpo_gym.envs.alfworld={id: hgpo_gym/ALFWorld-v0, max_episode_steps: 8}",
    "data.train_files=[signpost_maze:train*1,alfworld:generated*1]",
]


def command(folder, *settings, verls=TWO_ENVIRONMENTS):
    """The command and its environment."""
    ours = [f"model.path={folder / 'model'}", f"run_dir={folder / 'run'}", f"shaping.costs={{leave: {PRICE}}}"]
    ours += ["shaping=cost", f"memory.similarity={SIMILARITY}"]
    return cpu_command([*MAZE, *ours, *settings], verls, folder / "recorded")


def train(folder, *settings, **more):
    """Run the command to its end."""
    arguments, environment = command(folder, *settings, **more)
    with (folder / "log").open("w") as log:
        done = subprocess.run(arguments, env=environment, stdout=log, stderr=log, check=False)
    assert done.returncode == 0, (folder / "log").read_text()[-4000:]


class Training(NamedTuple):
    """A training that was stopped and continued by one iteration, and the number of iterations before."""

    folder: Path
    stopped: int


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verl")
    save_maze_model(folder / "model", steps=100)
    arguments, environment = command(folder, "trainer.iterations=1000")
    with (folder / "stopped").open("w") as log:
        running = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        while not metrics(folder) and running.poll() is None:
            time.sleep(0.5)
        running.send_signal(signal.SIGTERM)
        status = running.wait()
    output, before = (folder / "stopped").read_text(), metrics(folder)
    assert status == 130, output[-4000:]
    stopped = before[-1]["iteration"]
    assert f"Stopped after step {stopped}" in output
    newest = (folder / "run" / "checkpoints" / "latest_checkpointed_iteration.txt").read_text()
    assert int(newest) == stopped
    train(folder, f"trainer.iterations={stopped + 1}", "resume=auto")
    assert metrics(folder)[:-1] == before
    return Training(folder, stopped)


def metrics(folder):
    path = folder / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def check_recorded(folder, iterations):
    """Compare what every iteration trained on with `estimate`. Returns the environments of all of them: groups come in
    the order in which they end, so that one iteration may have a single environment."""
    environments, merges, largest = set(), 0, 0.0
    for step in range(1, iterations + 1):
        kept = RecordedStep.read(folder / "recorded" / f"{step}.json", shaped)
        assert kept.batch.texts
        batch, real = cluster_observations(kept.batch, kept.batch.texts, SIMILARITY), kept.rows
        merges += len(np.unique(batch.context_keys)) < len(np.unique(kept.batch.context_keys))
        assert len(np.unique(batch.trajectory)) == 16
        values = estimate("hgpo", batch, gamma=0.95)
        assert kept.largest_difference(values) < 1e-6
        largest = max(largest, np.abs(values).max())
        extras = [kept.fields["extra_fields"][row] for row in real]
        environments |= {extra["episode"]["source"] for extra in extras}
        for row, extra in zip(real, extras, strict=True):
            assert len(extra["steps"]) > 1 or all(kept.fields["response_mask"][row])
            # PPO's ratio is to the server's log-probabilities, as in this package.
            assert kept.fields["old_log_probs"][row] == kept.fields["rollout_log_probs"][row]
        of_weights = {extra["min_global_steps"] for extra in extras}
        assert step > 1 or of_weights == {0}
        if of_weights == {step - 1}:  # the ratio is 1: the loss is minus the mean advantage of a token
            advantages, mask = (np.concatenate(kept.fields[name]) for name in ("advantages", "response_mask"))
            loss = kept.fields["metrics"]["actor/pg_loss"]
            assert loss == pytest.approx(-np.average(advantages, weights=mask), abs=1e-4)
    assert merges
    assert largest > 0.5
    return environments


def shaped(step, text):
    """The step with the reward that the shaping leaves."""
    return {**step, "reward": step["reward"] - PRICE * (text["action"] == "leave")}


@pytest.mark.promise("What verl trains on has the advantages of `estimate`, and its loss.")
def test_advantages_and_loss(training):
    assert check_recorded(training.folder, training.stopped + 1) == {"signpost_maze_train", "alfworld_generated"}


@pytest.mark.slow
def test_processes_that_only_generate(tmp_path):
    save_maze_model(tmp_path / "model")
    separate = ["trainer.v1.trainer_mode=recorded_separate_async"]
    separate += ["actor_rollout_ref.rollout.checkpoint_engine.backend=file"]
    train(tmp_path, "trainer.iterations=2", "mode=separate_async", "rollout_gpus=1", verls=separate)
    check_recorded(tmp_path, 2)
    assert len(metrics(tmp_path)) == 2


@pytest.mark.slow
def test_rows_that_are_conversations(tmp_path):
    save_maze_model(tmp_path / "model", steps=100)
    conversation = ["memory=conversation", "trainer.rows=episode"]
    train(tmp_path, "trainer.iterations=2", *conversation, verls=["trainer.v1.trainer_mode=recorded_sync"])
    check_recorded(tmp_path, 2)
    steps, rows = metrics(tmp_path)[0]["steps"], RecordedStep.read(tmp_path / "recorded" / "1.json").rows
    assert 16 <= len(rows) < steps  # a conversation that is too long begins a new row


def test_the_run_directory_is_that_of_a_run(training, capsys):
    lines, last, run = metrics(training.folder), training.stopped + 1, training.folder / "run"
    assert [line["iteration"] for line in lines] == list(range(1, last + 1))
    assert all(line["episodes"] == 16 and line["optimizer_steps"] == 1 for line in lines)
    for arguments, expected in (
        (["health", run], f"{last} of {last} iterations"),
        (["report", run, "--out", training.folder / "report"], "Report:"),
        (["inspect", run, "--iteration", "2"], "episodes won"),
    ):
        main([str(argument) for argument in arguments])
        assert expected in capsys.readouterr().out
    evaluations = json.loads((run / "summary.json").read_text())["evaluations"]
    evaluated = [*range(0, last, 2), last]  # none of them twice, before and after the stop
    assert [(each["iteration"], each["tasks"], each["episodes"]) for each in evaluations] == [
        (iteration, 2, 4) for iteration in evaluated
    ]


def test_export(training):
    path = training.folder / "exported"
    main(["export", str(training.folder / "run"), "--to", str(path)])
    assert f"{training.stopped + 1} iterations" in (path / "README.md").read_text()
    trained, before = (
        transformers.AutoModelForCausalLM.from_pretrained(where).state_dict()
        for where in (path, training.folder / "model")
    )
    assert trained.keys() == before.keys()
    assert any(not torch.equal(trained[name], before[name]) for name in trained)
    assert transformers.AutoTokenizer.from_pretrained(path).chat_template
