"""Loggers: off unless asked for, the same numbers as metrics.jsonl, and one curve for a run that was resumed."""

import re
import subprocess
import sys

import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from hgpo_gym.extras import install_command
from hgpo_gym.runs.directory import read_metrics
from tests.support import warm
from tests.support.small_runs import finished, train, train_until


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    yield
    wandb.teardown()  # it reads the environment once in a process


def test_a_run_writes_no_other_logs_unless_asked(tmp_path):
    finished(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert "metrics.jsonl" in names
    assert not names & {"tensorboard", "wandb", "wandb_run_id"}


def curve(run_dir, name):
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


@pytest.mark.parametrize("every", [2, 100])
def test_tensorboard_shows_each_iteration_once_even_if_the_run_was_killed_and_resumed(every, tmp_path):
    """A run that is killed in its fourth iteration has logged three, and resumes from its checkpoint after two, or from
    its beginning."""
    script = (
        "import os, sys\n"
        "from hgpo_gym.runs.directory import RunDirectory\n"
        "from tests.support.small_runs import train\n"
        "log = RunDirectory.log\n"
        "def log_and_die(self, metrics):\n"
        "    log(self, metrics)\n"
        "    if metrics['iteration'] == 3:\n"
        "        os._exit(1)\n"
        "RunDirectory.log = log_and_die\n"
        "train(sys.argv[1], *sys.argv[2:])\n"
    )
    overrides = ["loggers=[tensorboard]", f"checkpoint.every={every}", "evaluation.every=4", "resume=auto"]
    subprocess.run([*warm.python(), "-c", script, str(tmp_path), *overrides], check=False)
    assert [step for step, _ in curve(tmp_path, "success")] == [1, 2, 3]
    train(tmp_path, *overrides)
    lines = read_metrics(tmp_path)
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    for name in ("success", "advantage_std"):
        assert curve(tmp_path, name) == [(line["iteration"], pytest.approx(line[name])) for line in lines]


def test_an_evaluation_that_was_left_to_make_is_logged_too(tmp_path):
    """A run that was to be longer is evaluated where it was broken off, when its last iteration was logged already."""
    overrides = ["loggers=[tensorboard,wandb]", "evaluation.every=0"]
    train_until(2, tmp_path, *overrides)
    assert "evaluation_success" not in read_metrics(tmp_path)[-1]
    for _ in range(2):  # again, for no checkpoint tells of it
        train(tmp_path, *overrides, "trainer.iterations=2", "resume=must")
    lines = read_metrics(tmp_path)
    assert [line["iteration"] for line in lines] == [1, 2]
    assert curve(tmp_path, "success") == [(line["iteration"], pytest.approx(line["success"])) for line in lines]
    _, *later = wandb_records(tmp_path)
    for name in ("evaluation_success", "evaluation_drop"):
        expected = [(2, pytest.approx(lines[-1][name]))]
        assert curve(tmp_path, name) == expected
        assert [history(records, name) for records in later] == [expected] * 2


def wandb_records(run_dir):
    """The records of each start of the run, in the format of wandb's .wandb files (LevelDB's log format)."""
    wandb.teardown()  # its process writes on after a run is finished
    return [list(read_log(path.read_bytes())) for path in sorted(run_dir.glob("wandb/offline-run-*/*.wandb"))]


def read_log(data, block=32768, header=7):
    position, pieces = header, b""
    while position + header <= len(data):
        if block - position % block < header:
            position += block - position % block
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        if kind == 0:
            return
        pieces += data[position + header : position + header + length]
        position += header + length
        if kind in (1, 4):  # whole, or last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            yield record
            pieces = b""


def history(records, name):
    rows = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            values = {item.key or item.nested_key[0]: float(item.value_json) for item in record.history.item}
            rows.append((record.history.step.num, values[name]))
    return rows


def test_a_resumed_run_goes_on_in_the_same_run_of_weights_and_biases(tmp_path):
    train(tmp_path, "loggers=[wandb]", "trainer.iterations=2")
    train(tmp_path, "loggers=[wandb]", "trainer.iterations=4", "resume=must")
    first, second = wandb_records(tmp_path)
    started = [
        next(record.run for record in part if record.WhichOneof("record_type") == "run") for part in (first, second)
    ]
    assert started[0].run_id == started[1].run_id == (tmp_path / "wandb_run_id").read_text()
    assert started[0].project == "hgpo_gym"
    assert {item.key for item in started[0].config.update} >= {"algo", "trainer", "seed"}
    expected = [(line["iteration"], pytest.approx(line["success"])) for line in read_metrics(tmp_path)]
    assert history(first, "success") == expected[:2]
    assert history(second, "success") == expected[2:]


@pytest.mark.parametrize(
    ("loggers", "message"),
    [("[wandbs]", "Unknown logger 'wandbs'. Did you mean 'wandb'?"), ("[tensorbord]", "Did you mean 'tensorboard'?")],
)
def test_an_unknown_logger_is_named(loggers, message, tmp_path):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        train(tmp_path, f"loggers={loggers}")
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("tensorboard", ["torch.utils.tensorboard", "hgpo_gym.runs.loggers.tensorboard"]),
        ("wandb", ["hgpo_gym.runs.loggers.wandb"]),
    ],
)
def test_a_missing_package_is_named_with_its_extra_before_anything_is_written(name, imported, tmp_path, monkeypatch):
    for module in imported:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=re.escape(install_command(name))):
        train(tmp_path / "run", f"loggers=[{name}]")
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_without_an_account_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where a login would be kept
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ConnectionError, match="set WANDB_MODE=offline, or leave wandb out of loggers"):
        train(tmp_path / "run", "loggers=[wandb]")
