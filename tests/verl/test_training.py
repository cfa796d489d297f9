"""`hgpo-gym verl` on two CPU processes with two servers: a training, and one that goes on from it and is stopped.

Nothing of verl is left out. `cpu_platform` has what it lacks without an accelerator, `tiny_rollout` the servers.
"""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import transformers

from hgpo_gym.adapters.verl import batch_of_rows
from hgpo_gym.advantages import estimate
from tests.support import ROOT
from tests.verl.maze_model import save_maze_model

OURS = [
    *("env=signpost_maze", "env.sections=1", "env.distance=0", "env.max_episode_steps=8", "prompt=brief"),
    *("algo=hgpo", "objective=gspo", "trainer.loss_aggregation=token_mean", "trainer.kl_coef=0"),
    *("rollout.num_tasks=2", "rollout.group_size=8", "rollout.max_new_tokens=12", "engine.max_prompt_tokens=128"),
    *("trainer.learning_rate=1e-3", "trainer.mini_batch_size=256", "trainer.max_batch_tokens=4096"),
    *("trainer.precision=float32", "trainer.gradient_checkpointing=false", "trainer.invalid_action_penalty=0.1"),
    *("evaluation.every=2", "evaluation.decoding_seeds=2", "evaluation.split=train", "checkpoint.every=2", "gpus=2"),
]
VERLS = [
    *("trainer.device=cpu", "trainer.v1.trainer_mode=recorded_colocate_async"),
    # Ray gets two GPUs that do not exist, and more CPUs than there are: verl counts them before it starts.
    *("++ray_kwargs.ray_init.num_gpus=2", "ray_kwargs.ray_init.num_cpus=16"),
    *("++ray_kwargs.ray_init.include_dashboard=false", "++ray_kwargs.ray_init.object_store_memory=200000000"),
    # Each process takes half a gigabyte and ten seconds to start.
    *("transfer_queue.backend.SimpleStorage.num_data_storage_units=1", "reward.num_workers=1"),
    *("actor_rollout_ref.rollout.agent.num_workers=1", "actor_rollout_ref.rollout.name=tiny"),
    # verl's defaults need flash-attention, and compile.
    *(
        "++actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.model.use_remove_padding=false",
    ),
    *("actor_rollout_ref.actor.use_torch_compile=false", "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false"),
]


def command(folder, *settings):
    """The command and its environment."""
    ours = [*OURS, f"model.path={folder / 'model'}", f"run_dir={folder / 'run'}", *settings]
    environment = {
        "VERL_USE_EXTERNAL_MODULES": "tests.verl.cpu_platform,tests.verl.recorded_trainer",
        "RECORDED": str(folder / "recorded"),
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
        "OMP_NUM_THREADS": "1",
        "RAY_worker_niceness": "0",  # Ray lets everything else go first
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
    }
    return [sys.executable, "-m", "hgpo_gym", "verl", *ours, "--", *VERLS], {**os.environ, **environment}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a training of two iterations."""
    folder = tmp_path_factory.mktemp("verl")
    save_maze_model(folder / "model")
    arguments, environment = command(folder, "trainer.iterations=2")
    with (folder / "log").open("w") as log:
        done = subprocess.run(arguments, env=environment, stdout=log, stderr=log, check=False)
    assert done.returncode == 0, (folder / "log").read_text()[-4000:]
    return folder


def metrics(folder):
    path = folder / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.timeout(1200)
@pytest.mark.promise("What verl trains on has the advantages of `estimate`, and its loss.")
def test_advantages_and_loss(folder):
    for step in (1, 2):
        kept = json.loads((folder / "recorded" / f"{step}.json").read_text())
        real = [row for row, padding in enumerate(kept["padding"]) if not padding]
        steps = [extra.get("steps", []) for extra in kept["extra_fields"]]
        batch = batch_of_rows(steps, kept["uid"], real)
        assert len(np.unique(batch.trajectory)) == 16
        values = estimate("hgpo", batch, gamma=0.95)
        assert np.abs(values).max() > 0.5
        for row, value in zip(real, values, strict=True):
            mask = np.array(kept["response_mask"][row])
            assert mask.all()
            np.testing.assert_allclose(kept["advantages"][row], value * mask, atol=1e-6)
            # PPO's ratio is to the server's log-probabilities, as in this package.
            assert kept["old_log_probs"][row] == kept["rollout_log_probs"][row]
        assert not any(any(kept["advantages"][row]) for row in range(len(steps)) if row not in real)
        if step == 1:  # the ratio is 1: the loss is minus the mean advantage of a token
            tokens = [len(kept["responses"][row]) for row in real]
            assert kept["metrics"]["actor/pg_loss"] == pytest.approx(-np.average(values, weights=tokens), abs=1e-4)


@pytest.mark.timeout(1200)
def test_the_run_directory_is_that_of_a_run(folder):
    lines = metrics(folder)
    assert [line["iteration"] for line in lines] == [1, 2]
    assert all(line["episodes"] == 16 and line["optimizer_steps"] == 1 for line in lines)
    (run,) = {folder / "run"}
    for arguments, expected in (
        (["health", run], "2 of 2 iterations"),
        (["report", run, "--out", folder / "report"], "Report:"),
        (["inspect", run, "--iteration", "2"], "episodes won"),
    ):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "hgpo_gym", *map(str, arguments)], capture_output=True, text=True
        )
        assert expected in done.stdout, done.stderr
    evaluations = json.loads((run / "summary.json").read_text())["evaluations"]
    assert [(each["iteration"], each["tasks"], each["episodes"]) for each in evaluations] == [(0, 2, 4), (2, 2, 4)]


@pytest.mark.timeout(1200)
def test_a_checkpoint_is_a_plain_folder(folder):
    path = folder / "run" / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    trained, before = (
        transformers.AutoModelForCausalLM.from_pretrained(where).state_dict() for where in (path, folder / "model")
    )
    assert trained.keys() == before.keys()
    assert any(not torch.equal(trained[name], before[name]) for name in trained)
    assert transformers.AutoTokenizer.from_pretrained(path).chat_template


@pytest.mark.timeout(1200)
def test_goes_on_from_a_checkpoint_and_stops_with_one(folder):
    before = metrics(folder)
    arguments, environment = command(folder, "trainer.iterations=1000", "resume=auto")
    with (folder / "resumed").open("w") as log:
        running = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        while len(metrics(folder)) < 3 and running.poll() is None:
            time.sleep(0.5)
        running.send_signal(signal.SIGTERM)
        status = running.wait()
    output = (folder / "resumed").read_text()
    assert status == 130, output[-4000:]
    after = metrics(folder)
    assert after[:2] == before
    last = after[-1]["iteration"]
    assert f"Stopped after step {last}" in output
    newest = (folder / "run" / "checkpoints" / "latest_checkpointed_iteration.txt").read_text()
    assert int(newest) == last >= 3
