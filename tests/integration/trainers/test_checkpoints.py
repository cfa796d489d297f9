"""Checkpoints: whatever moment a run is killed at, it resumes to the same numbers; damage and a full disk are errors.

Processes are really killed, and the kernel itself refuses to write: by a limit on the size of files, or a small disk.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from hgpo_gym.cli.evaluation import evaluated_policy
from hgpo_gym.config.compose import load_run
from hgpo_gym.config.of_run import load_evaluation
from hgpo_gym.files import NotWrittenError, make_whole, write_whole
from hgpo_gym.policies.huggingface import load_model, save_model
from hgpo_gym.policies.tabular import LogitTable, TabularPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.runs.checkpoints import (
    CheckpointNotSavedError,
    Checkpoints,
    InvalidCheckpointError,
    MisplacedCheckpointError,
)
from hgpo_gym.runs.directory import RunDirectory, latest_metrics, read_metrics, read_summary
from hgpo_gym.runs.run_files import DamagedError
from hgpo_gym.trainers.learners import Saving
from hgpo_gym.trainers.models.initial_weights import initial_weights
from tests.checks import killed_run
from tests.support import small_runs
from tests.support.small_runs import numbers, opened, training_numbers, without_seconds

SHORT = ["env.sections=1", "trainer.iterations=3", "checkpoint.every=1", "checkpoint.keep=1"]
FILE_EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


class Notes(Progress):
    """Keeps the lines that a person would see; `on_line` is called with each."""

    def __init__(self, on_line=lambda text: None):
        super().__init__(Console(quiet=True))
        self.lines, self.on_line = [], on_line

    def line(self, text):
        self.lines.append(text)
        self.on_line(text)


def train(run_dir, *overrides, progress=None):
    return small_runs.train(run_dir, *SHORT, *overrides, progress=progress or Notes())


def train_until(iteration, run_dir, *overrides):
    small_runs.train_until(iteration, run_dir, *SHORT, *overrides)


def killed_at(number, folder, act):
    """Call `act` in a process that kills itself just before its `number`th operation on files in `folder`.

    Returns whether it came to that.
    """
    process = os.fork()
    if process == 0:
        done = 0

        def watch(event, arguments):
            nonlocal done
            if event in FILE_EVENTS and str(arguments[0]).startswith(str(folder)):
                done += 1
                if done == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        failed = True
        try:
            act()
            failed = False
        finally:
            if failed:
                traceback.print_exc()
            os._exit(failed)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


@contextmanager
def files_of_at_most(size):
    """The kernel refuses to let a file of this process grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    run_dir = tmp_path_factory.mktemp("whole")
    train(run_dir)
    return run_dir


def save(checkpoints, iteration):
    policy = TabularPolicy(LogitTable(16), level=0)
    policy.model.logits.data.fill_(float(iteration))

    def write(folder):
        policy.save(folder / "model")
        torch.save({"optimizer": torch.full((4,), float(iteration))}, folder / "update.pt")

    checkpoints.save(iteration, Saving(write, nbytes=100), {})


@pytest.mark.promise("A kill at any moment of saving leaves an intact checkpoint.")
@pytest.mark.smoke
def test_a_kill_before_any_file_operation_of_saving_leaves_an_intact_newest_checkpoint(tmp_path):
    number, newest = 0, []
    while True:
        number += 1
        checkpoints = Checkpoints(tmp_path / str(number), keep=1)
        for iteration in (0, 1, 2):
            save(checkpoints, iteration)
        killed = killed_at(number, checkpoints.folder, lambda checkpoints=checkpoints: save(checkpoints, 3))
        path = checkpoints.latest_valid(pytest.fail)
        assert path == checkpoints.newest()
        loaded = TabularPolicy.load(path / "model").model.logits[0].item()
        assert loaded == torch.load(path / "update.pt")["optimizer"][0].item() == int(path.name[-4:])
        newest.append(int(loaded))
        checkpoints.prune(3, pytest.fail)
        save(checkpoints, 3)
        assert {file.name for file in checkpoints.folder.iterdir()} == {"iteration_0000", "iteration_0003"}
        if not killed:
            break
    assert number > 10
    assert newest == sorted(newest)  # 2 up to the moment at which it is moved into place, from then on 3
    assert set(newest) == {2, 3}


def test_a_run_killed_before_a_file_operation_resumes_to_the_same_metrics(tmp_path, whole):
    """At every 19th operation on its files, from the first folder to the summary."""
    kills = 0
    for number in range(1, 10_000, 19):
        run_dir = tmp_path / str(number)
        killed = killed_at(number, run_dir, lambda run_dir=run_dir: train(run_dir, "resume=auto"))
        kills += killed
        if killed:
            assert killed_at(0, run_dir, lambda run_dir=run_dir: train(run_dir, "resume=auto")) is False
        assert numbers(run_dir) == numbers(whole)
        assert read_summary(run_dir)["success_after"] == read_summary(whole)["success_after"]
        if not killed:
            break
    assert kills > 5


DAMAGE = {
    "model cut short": ("model/table.safetensors", lambda path: os.truncate(path, 100)),
    "a byte of the optimiser flipped": ("update.pt", lambda path: flip(path, 300)),
    "state removed": ("state.json", os.remove),
    "manifest empty": ("manifest", lambda path: os.truncate(path, 0)),
    "manifest cut short": ("manifest", lambda path: os.truncate(path, path.stat().st_size - 20)),
    "manifest removed": ("manifest", os.remove),
}


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.promise("A damaged checkpoint is named, and the one before is used.")
@pytest.mark.smoke
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_kept_and_the_one_before_is_used(damage, tmp_path, whole):
    train(tmp_path, "trainer.iterations=2", "checkpoint.keep=2", "evaluation.every=2")
    name, act = DAMAGE[damage]
    damaged = tmp_path / "checkpoints" / "iteration_0002"
    act(damaged / name)
    notes = Notes()
    train(tmp_path, "checkpoint.keep=2", "resume=auto", progress=notes)
    output = "\n".join(notes.lines)
    assert f"{damaged} is damaged: " in output
    assert name in output
    assert "Going on after iteration 1" in output
    assert (tmp_path / "checkpoints" / "unsound_iteration_0002_1").is_dir()
    assert numbers(tmp_path) == numbers(whole)


def test_a_checkpoint_under_another_number_or_of_another_run_is_named_and_nothing_is_cut(tmp_path, whole):
    train(tmp_path / "run", "checkpoint.every=1", "checkpoint.keep=3")
    newest, kept = (tmp_path / "run" / "checkpoints" / f"iteration_000{number}" for number in (3, 2))
    for source, reason in (
        (kept, "is the checkpoint of iteration 2: move it where it belongs"),
        (whole / "checkpoints" / newest.name, f"is of another run than {newest.with_name('iteration_0000')}"),
    ):
        shutil.rmtree(newest)
        shutil.copytree(source, newest)
        before = contents(tmp_path / "run")
        with pytest.raises(MisplacedCheckpointError, match=re.escape(f"{newest} {reason}")):
            train(tmp_path / "run", "resume=auto", "trainer.iterations=4")
        assert contents(tmp_path / "run") == before


def test_a_damaged_summary_is_named_where_the_best_checkpoint_is_asked_for(tmp_path):
    train(tmp_path)
    for content in ("[]", "{", '{"evaluations": 1}', '{"evaluations": [{}]}'):
        (tmp_path / "summary.json").write_text(content)
        with pytest.raises(DamagedError, match=r"summary\.json is damaged"):
            Checkpoints(tmp_path / "checkpoints").choose("best", print)


def test_a_run_without_an_intact_checkpoint_is_refused(tmp_path):
    train(tmp_path)
    for folder in (tmp_path / "checkpoints").iterdir():
        (folder / "manifest").unlink()
    with pytest.raises(
        InvalidCheckpointError, match=r"No checkpoint in .* is intact\. Restore one, or remove the folder"
    ):
        train(tmp_path, "trainer.iterations=4", "resume=auto")
    assert len(read_metrics(tmp_path)) == 3


@pytest.mark.parametrize("damage", ["removed", "cut short", "garbage at its end", "lines of iterations to come"])
def test_metrics_follow_the_checkpoint_whatever_became_of_the_file(damage, tmp_path, whole):
    train(tmp_path, "trainer.iterations=2")
    path = tmp_path / "metrics.jsonl"
    text = path.read_text()
    if damage == "removed":
        path.unlink()
    elif damage == "cut short":
        path.write_text(text[: len(text) // 3])
    elif damage == "garbage at its end":
        path.write_text(text + "\0\0\0\n")
    else:
        path.write_text(text + json.dumps({"iteration": 3, "success": 0.5}) + "\n" + '{"iteration": 4, "suc')
    train(tmp_path, "resume=auto")
    assert numbers(tmp_path) == numbers(whole)


def test_a_checkpoint_does_not_grow_with_the_iterations_before_it(tmp_path):
    train(tmp_path, "trainer.iterations=30", "checkpoint.keep=100", "evaluation.every=1")
    checkpoints = [tmp_path / "checkpoints" / f"iteration_{iteration:04d}" for iteration in (10, 29)]
    sizes = [sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) for folder in checkpoints]
    assert sizes[1] - sizes[0] < 500  # bytes, of longer numbers; the line of an iteration has 1,500


@pytest.mark.parametrize("damage", ["removed", "changed at iteration 2", "changed at iteration 1"])
def test_a_checkpoint_whose_rows_of_iterations_are_lost_is_left_out(damage, tmp_path, whole):
    train(tmp_path, "trainer.iterations=2", "checkpoint.keep=2")
    path, notes = tmp_path / "history.jsonl", Notes()
    if damage == "removed":
        path.unlink()
    else:
        flip(path, 10 if damage == "changed at iteration 1" else path.stat().st_size - 10)
    train(tmp_path, "resume=auto", "checkpoint.keep=2", progress=notes)
    output = "\n".join(notes.lines)
    assert f"iteration_0002 is damaged: {path} is not what was written" in output
    assert ("Going on after iteration 1" in output) == (damage == "changed at iteration 2")
    assert numbers(tmp_path) == numbers(whole)


def test_what_resume_asks_for_is_a_checkpoint(tmp_path):
    settings = {
        resume: small_runs.settings(tmp_path, *SHORT, f"resume={resume}") for resume in ("never", "auto", "must")
    }
    RunDirectory(tmp_path).begin(settings["auto"].resolved)  # a run that was killed before its first checkpoint
    with pytest.raises(FileNotFoundError, match=r"resume=must, but .* holds no checkpoint"):
        opened(settings["must"])
    train(tmp_path, "resume=auto")
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(ValueError, match=r"config.yaml is damaged: .*\. Restore it, or remove it"):
        opened(settings["auto"])
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(FileExistsError, match="already holds a run"):
        opened(settings["never"])
    assert train(tmp_path, "resume=must", "trainer.iterations=4")["iterations"] == 4


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("state", ["finished", "finished, checkpoints removed", "broken off"])
def test_a_run_that_has_more_iterations_than_are_asked_for_is_refused_and_left_as_it_was(state, tmp_path):
    if state == "broken off":
        train_until(3, tmp_path, "trainer.iterations=6")
    else:
        train(tmp_path)
    if "removed" in state:
        shutil.rmtree(tmp_path / "checkpoints")
    before = contents(tmp_path)
    refusal = re.escape(
        f"The run in {tmp_path} has 3 iterations already, more than trainer.iterations=2. Ask for at least 3, or name "
        "another folder, run_dir=... (out=... of a comparison)."
    )
    with pytest.raises(ValueError, match=refusal):
        train(tmp_path, "trainer.iterations=2", "resume=auto")
    assert contents(tmp_path) == before


def test_a_run_that_was_to_be_longer_can_end_where_it_was_broken_off(tmp_path, whole):
    """Its checkpoint was saved without the evaluation of the end."""
    train_until(3, tmp_path, "trainer.iterations=6")
    train(tmp_path, "resume=auto")
    assert numbers(tmp_path) == numbers(whole)
    assert without_seconds(read_summary(tmp_path)) == without_seconds(read_summary(whole))


@pytest.mark.smoke
@pytest.mark.parametrize("first", ["finished", "broken off"])
def test_a_run_that_is_extended_has_the_numbers_of_one_that_was_as_long_from_the_start(first, tmp_path):
    train(tmp_path / "long", "trainer.iterations=6")
    if first == "broken off":
        train_until(3, tmp_path / "short", "trainer.iterations=6")
    train(tmp_path / "short", "resume=auto")
    train(tmp_path / "short", "resume=auto", "trainer.iterations=6")
    assert training_numbers(tmp_path / "short") == training_numbers(tmp_path / "long")
    short, long = (without_seconds(read_summary(tmp_path / name)) for name in ("short", "long"))
    assert [one for one in short["evaluations"] if one["iteration"] != 3] == long["evaluations"]
    assert short["success_after"] == long["success_after"]


def test_what_changes_no_numbers_may_change_when_a_run_goes_on(tmp_path, whole):
    train(tmp_path, "trainer.iterations=2")
    changed = [
        "trainer.max_batch_tokens=64", "engine.max_batch_tokens=64", "engine.max_cache_tokens=4096",
        "model.threads=1", "checkpoint.every=2", "evaluation.every=0",
    ]  # fmt: skip
    train(tmp_path, "resume=must", *changed)
    assert training_numbers(tmp_path) == training_numbers(whole)


@contextmanager
def tensors_said_to_be_on_a_gpu():
    """Files of tensors that are written in it say that they were on a GPU."""
    torch.serialization.register_package(0, lambda _storage: "cuda:0", lambda _storage, _location: None)
    try:
        yield
    finally:
        torch.serialization._package_registry.pop(0)


def test_a_run_that_was_on_a_gpu_goes_on_without_one(tmp_path, whole):
    with tensors_said_to_be_on_a_gpu():
        train(tmp_path, "trainer.iterations=2")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(tmp_path / "checkpoints" / "iteration_0002" / "update.pt", weights_only=True)
    train(tmp_path, "resume=must")
    assert numbers(tmp_path) == numbers(whole)


@pytest.mark.smoke
def test_global_random_states_change_nothing_not_even_with_dropout(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    made = load_run(["warmstart.source=none", "tiny.hidden_size=32", "tiny.heads=2"])
    model, tokenizer = load_model(initial_weights(made, made.model, Notes()))
    model.config.attention_dropout = 0.3
    save_model(model, tokenizer, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["attention_dropout"] == 0.3
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        train(
            tmp_path / str(seed), "model=tiny", f"model.path={tmp_path / 'model'}",
            "trainer.iterations=2", "evaluation.every=0", "evaluation.decoding_seeds=1",
        )  # fmt: skip
    assert numbers(tmp_path / "1") == numbers(tmp_path / "2")


def test_the_checkpoint_of_the_best_evaluation_is_kept(tmp_path):
    """A large learning rate solves the maze before the end; of equal evaluations the first counts."""
    train(
        tmp_path, "env.sections=2", "env.max_episode_steps=12", "rollout.group_size=8", "trainer.iterations=10",
        "trainer.learning_rate=3", "evaluation.every=1", "checkpoint.every=100",
    )  # fmt: skip
    best = read_summary(tmp_path)["best"]
    assert best["success"] == 1.0
    assert 0 < best["iteration"] < 10, "choose other settings: this test needs a best evaluation before the last"
    saved = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert saved == ["iteration_0000", f"iteration_{best['iteration']:04d}", "iteration_0010"]
    tables = []
    for iteration in ("best", best["iteration"], "newest"):
        config = load_evaluation([f"run={tmp_path}", f"iteration={iteration}"])
        tables.append(evaluated_policy(config, Notes())[0].model.logits)
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_the_best_may_be_an_evaluation_that_no_checkpoint_tells_of(tmp_path):
    """A run that ends sooner than was planned is evaluated after its last checkpoint was saved."""
    solves = ["env.sections=2", "env.max_episode_steps=12", "rollout.group_size=8", "trainer.learning_rate=3",
              "evaluation.every=0"]  # fmt: skip
    small_runs.train_until(6, tmp_path, *solves, "trainer.iterations=9")
    summary = train(tmp_path, *solves, "trainer.iterations=6", "resume=must")
    assert summary["best"]["iteration"] == 6
    assert Checkpoints(tmp_path / "checkpoints").choose("best", print).name == "iteration_0006"


def test_a_run_goes_on_without_a_checkpoint_that_the_disk_does_not_take_and_tries_again(tmp_path, whole):
    """The table of 16,384 logits fits into 100 kB, its optimiser's state does not."""
    with files_of_at_most(100_000):

        def make_room(text):
            if "No checkpoint after iteration 2" in text:
                _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

        notes = Notes(make_room)
        train(tmp_path, progress=notes)
    missed = [text for text in notes.lines if text.startswith("No checkpoint")]
    assert [text.split(":")[0] for text in missed] == [f"No checkpoint after iteration {n}" for n in (1, 2)]
    assert f"Cannot write {tmp_path / 'checkpoints' / 'iteration_0001'}: File too large; " in missed[0]
    assert "It takes about 0.2 MB. Older checkpoints are as they were. Free some space there." in missed[0]
    assert "tries again after the next iteration" in missed[0]
    saved = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert saved == ["iteration_0000", "iteration_0003"]
    assert numbers(tmp_path) == numbers(whole)


def test_a_last_checkpoint_that_the_disk_does_not_take_stops_the_run_and_nothing_is_lost(tmp_path, whole):
    with files_of_at_most(100_000), pytest.raises(CheckpointNotSavedError, match="No checkpoint after iteration 3"):
        train(tmp_path)
    assert Checkpoints(tmp_path / "checkpoints").latest_valid(pytest.fail).name == "iteration_0000"
    assert not (tmp_path / "summary.json").exists()
    train(tmp_path, "resume=auto")
    assert numbers(tmp_path) == numbers(whole)


def test_metrics_that_the_disk_does_not_take_are_named_and_the_lines_before_stay(tmp_path):
    run = RunDirectory(tmp_path)
    with files_of_at_most(100):
        run.log({"iteration": 1, "success": 0.25})
        with pytest.raises(NotWrittenError, match=r"Cannot write .*metrics\.jsonl: File too large; .* MB are free"):
            run.log({"iteration": 2, "success": 0.5, "more": "x" * 100})
    assert latest_metrics(run.path) == {"iteration": 1, "success": 0.25}
    run.log({"iteration": 2, "success": 0.5})
    assert [json.loads(line)["iteration"] for line in run.metrics_path.read_text().splitlines()] == [1, 2]


def test_a_file_or_folder_that_the_disk_refuses_leaves_the_old_one_and_no_rest(tmp_path):
    path = tmp_path / "summary.json"
    write_whole(path, "old")
    with files_of_at_most(1000):
        with pytest.raises(NotWrittenError, match=r"summary\.json: File too large"):
            write_whole(path, "x" * 5000)
        with pytest.raises(NotWrittenError, match="folder: File too large"):
            make_whole(tmp_path / "folder", lambda folder: save_file({"x": torch.zeros(5000)}, folder / "x"))
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_a_folder_that_a_killed_process_left_half_made_is_removed_by_the_next_and_one_in_the_making_is_not(tmp_path):
    script = f"""
from pathlib import Path; import time
from hgpo_gym.files import make_whole
def fill(folder): (folder / "half").touch(); print(folder, flush=True); time.sleep(60)
make_whole(Path({str(tmp_path / "folder")!r}), fill)
"""
    makers = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, living = (Path(maker.stdout.readline().strip()) for maker in makers)
        makers[0].kill()
        makers[0].wait()
        for folder in (killed, living):
            os.utime(folder, (0, 0))
        made = make_whole(tmp_path / "folder", lambda folder: (folder / "whole").touch())
        assert set(tmp_path.iterdir()) == {made, living}
        assert (living / "half").exists()
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()
            maker.stdout.close()


@pytest.mark.timeout(600)
def test_a_run_killed_at_random_moments_and_resumed_ends_with_the_same_metrics(tmp_path, capsys):
    """The benchmark with few kills: the command, in new processes."""
    overrides = [*small_runs.SETTINGS, *SHORT, "trainer.iterations=30"]
    assert killed_run.compare(tmp_path / "runs", overrides, kills=3, seed=1) == []
    output = capsys.readouterr().out
    assert output.count(" is intact") == 3
    assert "30 lines of metrics" in output


def small_disk(folder, size, command):
    """Run a command with a disk of that size mounted on `folder`, which is copied to `folder.after`."""
    script = 'mount -t tmpfs -o size=$0 none $1 && { "${@:2}"; ended=$?; cp -r $1 $1.after; exit $ended; }'
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", script, size, str(folder), *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.promise("A full disk costs no checkpoint that was there.")
def test_a_full_disk_is_an_error_and_old_checkpoints_stay(tmp_path, whole):
    disk, after = tmp_path / "disk", tmp_path / "disk.after" / "run"
    disk.mkdir()
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(disk)], check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    overrides = [*small_runs.SETTINGS, *SHORT, f"run_dir={disk / 'run'}", "trainer.iterations=6"]
    ended = small_disk(disk, "400k", [sys.executable, "-m", "hgpo_gym", "train", *overrides])
    assert ended.returncode == 1, ended.stderr
    assert "No space left on device" in ended.stdout
    assert "The run goes on and tries again" in ended.stdout
    assert "iteration 6: No checkpoint after iteration 6: Cannot write" in ended.stderr
    assert "the same command with resume=auto continues from" in ended.stderr
    assert "Traceback" not in ended.stderr
    newest = Checkpoints(after / "checkpoints").latest_valid(pytest.fail)
    assert newest == Checkpoints(after / "checkpoints").newest()
    assert newest.name == "iteration_0001"
    train(after, "trainer.iterations=6", "resume=auto")
    assert numbers(after)[:2] == numbers(whole)[:2]
    assert len(numbers(after)) == 6
