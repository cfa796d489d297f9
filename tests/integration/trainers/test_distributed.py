"""Several processes: real ones, started by the launchers, get the numbers of one, go on from its checkpoints, and stop
together."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

from hgpo_gym.config.compose import load_run
from hgpo_gym.policies.batching import length_sorted_batches, shard_batches
from hgpo_gym.processes import ALONE, Processes
from hgpo_gym.runs.directory import read_metrics, read_summary
from hgpo_gym.trainers.run import processes_of
from tests.checks import fsdp2_memory
from tests.checks.memory_formula import size_of
from tests.support import small_runs, warm
from tests.support.small_runs import numbers

pytestmark = pytest.mark.timeout(600)

ITERATIONS = 5
BROKEN_OFF = 3
SMALL = [
    *small_runs.TINY, "model.device=cpu", "rollout.num_tasks=4", "checkpoint.every=1", "checkpoint.keep=9",
    "trainer.kl_coef=0.01", "trainer.max_batch_tokens=512", f"trainer.iterations={ITERATIONS}",
]  # fmt: skip
TORCHRUN = ["torch.distributed.run", "--nproc_per_node=2", "--standalone"]
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0"]


@pytest.fixture(autouse=True, scope="module")
def an_empty_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A run of one process, a checkpoint after each iteration."""
    return train(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """The same by two processes that share the weights."""
    run_dir = tmp_path_factory.mktemp("sharded")
    finish(launch(TORCHRUN, run_dir, "distributed=fsdp2"))
    return run_dir


def train(run_dir, *overrides):
    small_runs.train(run_dir, *overrides, base=SMALL)
    return run_dir


def launch(launcher, run_dir, *overrides, **environment):
    settings = [*SMALL, f"run_dir={run_dir}", *overrides]
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, "-m", "tests.support.command_with_threads", "train", *settings],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment,
    )  # fmt: skip


def finish(process):
    output, _ = process.communicate()
    assert process.returncode == 0, output
    if sys.platform == "linux":
        left = [line.split()[1:] for line in output.splitlines() if line.startswith("THREADS")]
        assert len(left) == 2, output
        # One that still wants Python's lock then aborts a run that is done, now and then.
        assert not [thread for threads in left for thread in threads if "gloo" in thread], output
    return output


def train_in_two(run_dir, *overrides):
    """The run of `train` by two processes with a launcher's variables; they are forks, which start quickly.
    Returns what they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [*warm.python(), "-m", "hgpo_gym", "train", *SMALL, f"run_dir={run_dir}", *overrides]
    outputs, processes = [run_dir.with_name(f"output{rank}.txt") for rank in range(2)], []
    for rank, output in enumerate(outputs):
        with output.open("w") as file:
            environment = {**os.environ, **together, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment))
    statuses = [process.wait() for process in processes]
    printed = "".join(output.read_text() for output in outputs)
    assert statuses == [0, 0], printed
    return printed


def broken_off(run_dir, copy):
    """A copy of a run as it was after `BROKEN_OFF` iterations."""
    shutil.copytree(run_dir, copy)
    for later in range(BROKEN_OFF + 1, ITERATIONS + 1):
        shutil.rmtree(copy / "checkpoints" / f"iteration_{later:04d}")
    return copy


def assert_same_numbers(run_dir, expected):
    """Every number of every iteration but the seconds, and the last evaluation."""
    lines, expected_lines = numbers(run_dir), numbers(expected)
    assert [line["iteration"] for line in lines] == list(range(1, read_summary(expected)["iterations"] + 1))
    for line, other in zip(lines, expected_lines, strict=True):
        assert line.keys() == other.keys()
        for name in line:
            where = f"{name} of iteration {line['iteration']}"
            np.testing.assert_allclose(line[name], other[name], atol=1e-4, rtol=0, err_msg=where)
    assert read_summary(run_dir)["success_after"] == read_summary(expected)["success_after"]


def test_one_process_learns_something_that_others_can_be_compared_with(one):
    losses = [line["loss"] for line in read_metrics(one)]
    assert np.std(losses) > 0.01
    assert read_metrics(one)[-1]["success"] > read_metrics(one)[0]["success"]


@pytest.mark.promise("Two processes give the numbers of one, as replicas.")
def test_two_replicas_give_the_numbers_of_one_process(one, tmp_path):
    output = finish(launch(ACCELERATE, tmp_path, "distributed=ddp"))
    assert_same_numbers(tmp_path, one)
    assert output.count(f"{ITERATIONS}/{ITERATIONS}") == 1, "only the main process reports"


PLANS = ["algo=hiper_hae", "prompt=plan", "rollout.max_new_tokens=64"]


@pytest.mark.parametrize(
    ("strategy", "algo"),
    [("ddp", PLANS), ("fsdp2", ["algo=empg", "algo.base=gae", "sampler=dynamic", "sampler.rounds=2"])],
)
def test_two_processes_have_one_critic_and_measure_one_entropy(strategy, algo, tmp_path):
    settings = [*algo, "trainer.iterations=2", "trainer.kl_coef=0"]
    train(tmp_path / "one", *settings)
    train_in_two(tmp_path / "two", f"distributed={strategy}", *settings)
    assert_same_numbers(tmp_path / "two", tmp_path / "one")
    line = read_metrics(tmp_path / "two")[-1]
    assert line.get("value_loss", line.get("value_low_loss")) > 0


@pytest.mark.promise("Two processes give the numbers of one, as shards.")
def test_two_shards_give_the_numbers_of_one_process(one, sharded):
    assert_same_numbers(sharded, one)


def test_a_checkpoint_does_not_depend_on_how_many_processes_made_it(one, sharded):
    ours, theirs = (run / "checkpoints" / f"iteration_{ITERATIONS:04d}" for run in (sharded, one))
    weights, expected = (load_file(path / "model" / "model.safetensors") for path in (ours, theirs))
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], atol=1e-3, rtol=0)
    state, expected_state = (torch.load(path / "update.pt")["optimizer"] for path in (ours, theirs))
    assert state["param_groups"] == expected_state["param_groups"]
    for name, moments in expected_state["state"].items():
        torch.testing.assert_close(state["state"][name], moments, atol=1e-4, rtol=0)


def test_one_process_goes_on_from_a_checkpoint_of_two_shards(one, sharded, tmp_path):
    run_dir = broken_off(sharded, tmp_path / "run")
    assert_same_numbers(train(run_dir, "resume=must"), one)


def test_two_shards_go_on_from_a_checkpoint_of_one_process(one, tmp_path):
    run_dir = broken_off(one, tmp_path / "run")
    output = train_in_two(run_dir, "resume=must", "distributed=fsdp2")
    assert f"Going on after iteration {BROKEN_OFF}" in output
    assert_same_numbers(run_dir, one)


def test_two_shards_under_an_adapter_give_the_numbers_of_one_process(tmp_path):
    """With what else looks into the model: old log-probabilities, and layers that are computed again. One process alone
    has a response in each mini-batch, the other one keeps step."""
    settings = [
        "rollout.num_tasks=2", "rollout.group_size=2", "trainer.mini_batch_size=1", "model.lora.rank=4",
        "trainer.learning_rate=0.01", "trainer.recompute_logprobs=true",
        "trainer.gradient_checkpointing=true", "trainer.iterations=2",
    ]  # fmt: skip
    train(tmp_path / "one", *settings)
    train_in_two(tmp_path / "two", "distributed=fsdp2", *settings)
    assert_same_numbers(tmp_path / "two", tmp_path / "one")
    saved = [tmp_path / run / "checkpoints" / "iteration_0002" / "model" for run in ("one", "two")]
    ours, theirs = (load_file(path / "adapter_model.safetensors") for path in saved)
    assert ours.keys() == theirs.keys()
    assert not (saved[1] / "model.safetensors").exists()


def launched_until_broken_off(run_dir, *overrides):
    """A launcher whose run waits after `BROKEN_OFF` iterations, and its processes."""
    launcher = launch(TORCHRUN, run_dir, "distributed=ddp", *overrides, HELD_AFTER=str(BROKEN_OFF))
    while not (run_dir / "held").exists():
        assert launcher.poll() is None, launcher.stdout.read()
        time.sleep(0.01)
    return launcher, psutil.Process(launcher.pid).children(recursive=True)


def second_of(processes):
    (second,) = [process for process in processes if process.environ().get("RANK") == "1"]
    return second


def test_if_one_process_is_killed_all_stop_and_the_run_can_go_on(one, tmp_path):
    launcher, processes = launched_until_broken_off(tmp_path)
    second_of(processes).kill()
    output, _ = launcher.communicate()
    assert launcher.returncode != 0, output
    assert not [process for process in processes if process.is_running()], output
    assert BROKEN_OFF <= len(read_metrics(tmp_path)) < ITERATIONS
    assert_same_numbers(train(tmp_path, "resume=auto"), one)


@pytest.mark.parametrize("whom", ["the launcher is interrupted", "the launcher is ended", "one process is ended"])
def test_a_signal_to_any_saves_a_checkpoint_of_all(whom, one, tmp_path):
    launcher, processes = launched_until_broken_off(tmp_path, "checkpoint.every=100", "checkpoint.keep_best=false")
    if whom == "one process is ended":
        second_of(processes).terminate()
    else:
        launcher.send_signal(signal.SIGINT if whom == "the launcher is interrupted" else signal.SIGTERM)
    output, _ = launcher.communicate()
    assert launcher.returncode != 0, output
    assert not [process for process in processes if process.is_running()], output
    done = len(read_metrics(tmp_path))
    assert BROKEN_OFF <= done < ITERATIONS
    saved = sorted(path.name for path in (tmp_path / "checkpoints").glob("iteration_*"))
    assert saved == ["iteration_0000", f"iteration_{done:04d}"], output
    assert f"interrupted after iteration {done}" in output
    assert_same_numbers(train(tmp_path, "resume=auto"), one)


class Part(Processes):
    """One of several processes, as far as dividing work goes."""

    def __init__(self, rank, count):
        self.rank, self.count = rank, count


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shares_are_a_division(count):
    shares = [Part(rank, count).share(list(range(7))) for rank in range(count)]
    assert [item for share in shares for item in share] == list(range(7))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_every_process_gets_as_many_batches_and_about_as_many_tokens(world_size):
    lengths = np.random.default_rng(world_size).integers(20, 200, size=61).tolist()
    shards = shard_batches(lengths, 512, world_size)
    assert len(shards) == world_size
    assert sorted(index for batches in shards for batch in batches for index in batch) == list(range(61))
    assert len({len(batches) for batches in shards}) == 1
    assert all(batches == [*filter(None, batches), *([[]] * batches.count([]))] for batches in shards), (
        "empty ones last"
    )
    tokens = [sum(lengths[index] for batch in batches for index in batch) for batches in shards]
    assert max(tokens) - min(tokens) <= max(lengths)
    if world_size == 1:
        assert shards[0] == list(length_sorted_batches(lengths, 512))


def test_a_process_without_a_sequence_has_an_empty_batch():
    assert shard_batches([5, 6], 100, 3) == [[[1]], [[0]], [[]]]


@pytest.mark.parametrize(
    ("count", "words", "message"),
    [
        (2, "distributed=dpp", "Unknown distributed 'dpp'. Did you mean 'ddp'?"),
        (2, "", "2 processes were launched, and distributed=none is for one: set ddp or fsdp2."),
        (3, "distributed=ddp", "rollout.num_tasks=8 is not a multiple of 3 processes.* set it to 6 or 9"),
        (16, "distributed=ddp", "set it to 16"),
        (2, "distributed=ddp model=tabular", "model.kind=tabular trains in one process"),
        (2, "distributed=ddp model.device=cuda:1", "model.device=cuda:1: 2 processes take a GPU each"),
        (2, "distributed=ddp engine=vllm engine.server=http://a:1", "engine.server=http://a:1: the weights of one"),
        (2, "distributed=fsdp2 trainer.optimizer=adamw_8bit", "trainer.optimizer=adamw_8bit: it cannot hold parts"),
        (2, "distributed=fsdp2 model.quantization=nf4 model.lora.rank=4", "model.quantization=nf4: weights in 4"),
    ],
)
def test_settings_that_do_not_suit_several_processes(count, words, message, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", str(count))
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        processes_of(load_run(words.split()))


def test_accelerate_leaves_the_strategy_to_the_configuration(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="leave that to distributed=fsdp2"):
        processes_of(load_run(["distributed=fsdp2"]))


def test_one_process_is_alone_whatever_is_set(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert processes_of(load_run(["distributed=fsdp2"])) is ALONE


ENDS = """
import os, sys, types, torch
from accelerate.state import AcceleratorState
from hgpo_gym.processes import join_processes
from hgpo_gym.trainers.update.distribute import distribute

def work_together():
    processes = join_processes("ddp", groups=2, on_cpu=True)
    weights = distribute(types.SimpleNamespace(model=torch.nn.Linear(50, 50)), processes)
    weights._root(lambda: weights.policy.model(torch.zeros(2, 50))).sum().backward()
    for _ in range(3):
        processes.sum(torch.ones(2000))
    processes.close()

for turn in range(30):
    # Joined here, where each turn has a separate file to meet in; Accelerator takes the group that there is.
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/{turn}", rank=rank, world_size=2)
    work_together()
    AcceleratorState._reset_state(reset_partial_state=True)
"""


def test_ddp_lets_go_of_a_closed_group(tmp_path):
    """Its reducer must not be the last to: it would hold Python's lock and wait for a thread that wants the lock."""
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    command = [sys.executable, "-m", *TORCHRUN, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_commands_are_not_for_several_processes(tmp_path):
    result = subprocess.run(
        [*warm.python(), "-m", "hgpo_gym", "eval"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "WORLD_SIZE": "2", "RANK": "1"},
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith("hgpo-gym (process 1): 2 processes were launched, but eval runs in one")
    assert not list(Path(tmp_path).iterdir())


def test_fsdp2_has_what_the_formula_says():
    """Two real processes: their parts of weights, gradients and optimiser, and the peaks of scoring and an update."""
    command = [sys.executable, "-m", *TORCHRUN, "-m", "tests.checks.fsdp2_memory"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    for part in ("weights", "optimiser", "gradients"):
        assert found[part]["measured"] == pytest.approx(found[part]["formula"], rel=0.001), part
    size = size_of(fsdp2_memory.SETTING)
    assert size.outside > 3 * size.layer
    for part in ("scoring", "update"):  # gloo gives layers back sooner or later
        assert abs(found[part]["measured"] - found[part]["formula"]) < 3.5 * size.layer, part
