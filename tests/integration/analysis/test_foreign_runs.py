"""Run directories of somebody else: files are read within bounds, what is damaged is named, no link is followed, and
terminals, spreadsheets and pages obey nothing in it."""

import csv
import gzip
import json
import os
import re
import shutil
import stat

import pytest
import yaml

from hgpo_gym.plain_text import for_markdown, for_spreadsheet, for_terminal
from hgpo_gym.runs.checkpoints import Checkpoints
from hgpo_gym.runs.run_files import CONFIG_BYTES
from tests.support.commands import run as run_command
from tests.support.small_runs import SETTINGS, finished, train

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def run(tmp_path):
    finished(tmp_path / "run")
    return tmp_path / "run"


def refused(capsys, *arguments):
    """Return the errors of a command that ends with exit status 2."""
    status, _, err = run_command(capsys, *arguments)
    assert status == 2, err
    return err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param("a: !!python/object/apply:os.system ['true']", "is no plain data", id="a call"),
        pytest.param("a: &a {x: 1}\nb: {<<: [*a, *a]}", "is no plain data", id="a merge"),
        pytest.param("a: " + "[" * 50_000, "nest|recursion|while increasing", id="nested without end"),
        pytest.param("a: &a [*a]", "nested deeper than 32 levels|recursive", id="a list in itself"),
        pytest.param(BOMB, "more than 20,000 values", id="aliases of aliases"),
        pytest.param("objective: {name: [[]]}", "objective.name", id="a list for a name"),
        pytest.param("a: " + "9" * 400, "a number of 400 digits", id="a number that no float holds"),
        pytest.param("- a", "no mapping", id="a list"),
        pytest.param("", "no mapping", id="nothing"),
    ],
)
def test_a_configuration_that_no_run_writes_is_refused_by_name(run, capsys, content, reason):
    (run / "config.yaml").write_text(content)
    for command in (["report", run], ["inspect", run], ["export", run, "--to", run / "out"], ["eval", f"run={run}"]):
        assert re.search(f"config.yaml is damaged: .*({reason})", refused(capsys, *command), re.DOTALL)


def test_files_have_a_largest_size_unpacked_too(run, capsys, monkeypatch):
    monkeypatch.setattr("hgpo_gym.runs.run_files.MAX_BYTES", 10**6)
    (run / "rollouts" / "iteration_0004.json.gz").write_bytes(gzip.compress(b" " * 10**7))
    assert "it unpacks to more than 1,000,000 bytes" in refused(capsys, "inspect", run)
    (run / "config.yaml").write_text("a: " + "x" * CONFIG_BYTES)
    assert "config.yaml: it has more than 262,144 bytes" in refused(capsys, "report", run)


@pytest.mark.promise("No link or pipe in a run directory is followed or waited for.")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "link"])
def test_a_link_or_a_pipe_in_place_of_a_file_is_named_and_not_waited_for(run, capsys, make):
    for name, command in (
        ("config.yaml", ["report", run]),
        ("summary.json", ["report", run]),
        ("metrics.jsonl", ["report", run]),
        ("rollouts/iteration_0004.json.gz", ["inspect", run]),
        ("lock", ["train", *SETTINGS, f"run_dir={run}", "resume=auto", "trainer.iterations=5"]),
        ("history.jsonl", ["train", *SETTINGS, f"run_dir={run}", "resume=auto", "trainer.iterations=5"]),
    ):
        file = run / name
        file.rename(run / "aside")
        make(file)
        assert re.search(rf"Cannot use {file}: it is (a link|no regular file)", refused(capsys, *command))
        file.unlink()
        (run / "aside").rename(file)


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_training_changes_nothing_outside_its_run(run, capsys, tmp_path, link):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("lock", "launches.jsonl", ".config.yaml.new", ".metrics.jsonl.new"):
        (run / name).unlink(missing_ok=True)
        link(mine, run / name)
    run_command(capsys, "train", *SETTINGS, f"run_dir={run}", "resume=auto", "trainer.iterations=5")
    assert mine.read_text() == "mine"


def test_a_run_with_folders_elsewhere_is_refused_before_anything_is_pruned(run, capsys, tmp_path):
    for name in ("checkpoints", "rollouts", "failures"):
        (tmp_path / name).mkdir()
        if (run / name).exists():
            (run / name).rename(tmp_path / name)
        (run / name).symlink_to(tmp_path / name)
        (tmp_path / name / ".iteration_0003-removed").mkdir()
        err = refused(capsys, "train", *SETTINGS, f"run_dir={run}", "resume=auto", "trainer.iterations=5")
        assert f"Cannot use {run / name}: it is a link" in err
        assert (tmp_path / name / ".iteration_0003-removed").exists()
        (run / name).unlink()
        (tmp_path / name).rename(run / name)


def test_training_refuses_what_cannot_be_written_in_a_run(run, capsys):
    for name in ("checkpoints", "rollouts", "evaluations", "failures"):
        if (run / name).exists():
            (run / name).rename(run / "aside")
        os.mkfifo(run / name)
        err = refused(capsys, "train", *SETTINGS, f"run_dir={run}", "resume=auto", "trainer.iterations=5")
        assert f"Cannot use {run / name}: it is no folder" in err
        (run / name).unlink()
        if (run / "aside").exists():
            (run / "aside").rename(run / name)
    os.link(run / "history.jsonl", run / "another")  # the file that checkpoints append to
    err = refused(capsys, "train", *SETTINGS, f"run_dir={run}", "resume=auto", "trainer.iterations=5")
    assert f"Cannot use {run / 'history.jsonl'}: it is a hard link" in err


def test_a_value_of_the_wrong_type_is_named_with_its_file(run, capsys):
    rollout = "rollouts/iteration_0004.json.gz"
    for name, changed, place in (
        ("summary.json", {"iterations": "four"}, "iterations='four'"),
        ("summary.json", {"evaluations": [{"iteration": 10**400}]}, "evaluations.*iteration"),
        ("metrics.jsonl", {"success": 2.0}, "line 4: success=2.0"),
        ("launches.jsonl", {"versions": []}, "line 1: versions="),
        ("config.yaml", {"seed": "zero"}, "seed='zero'"),
        (rollout, {"episodes": None}, "valid tuple"),
    ):
        file = run / name
        intact = file.read_bytes()
        text = (gzip.decompress(intact) if name == rollout else intact).decode()
        *lines, last = text.splitlines() if name.endswith(".jsonl") else [text]
        content = json.dumps({**yaml.safe_load(last), **changed})
        text = "".join(f"{line}\n" for line in [*lines, content])
        file.write_bytes(gzip.compress(text.encode()) if name == rollout else text.encode())
        command = ["inspect", run, "--task", "1"] if name == rollout else ["report", run]
        assert re.search(rf"{re.escape(name)} is damaged: .*({place})", refused(capsys, *command), re.DOTALL)
        file.write_bytes(intact)


COMMANDS = "\x1b\x07\x9b\u202e\u200f"
HOSTILE = (
    f"\x1b]0;owned\x07=cmd|'/C calc'!A0 <img src=x onerror=alert(1)> ![x](http://example.org/) $\\frac$ {COMMANDS}"
)


def test_what_a_run_is_called_is_not_obeyed(run, capsys):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["env_name"], settings["algo"]["name"] = HOSTILE, f"={HOSTILE}"
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    launch = json.loads((run / "launches.jsonl").read_text()) | {"command": f"```\n{HOSTILE}"}
    (run / "launches.jsonl").write_text(json.dumps(launch) + "\n")
    status, out, err = run_command(capsys, "report", run)
    assert (status, err) == (0, "")
    assert not set(COMMANDS) & set(out)
    assert "\\x1b]0;owned\\x07" in out
    markdown = (run / "report.md").read_text()
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    assert "````" in markdown  # a fence that the command does not close
    assert "<img" not in outside.replace("\\<img", "")
    assert "![x](" not in outside
    page = (run / "report.html").read_text()
    assert "<img src=x" not in page
    assert "\\x1b]0;owned\\x07" in page
    assert not set(COMMANDS) & set(page)
    cells = [cell for file in (run / "tables").glob("*.csv") for row in csv.reader(file.open()) for cell in row]
    assert any("owned" in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\x1b"))]


def test_text_that_would_be_obeyed():
    assert for_terminal("\x1b[31mred\u202e\ud800\ttab\n") == "\\x1b[31mred\\u202e\\ud800\ttab\n"
    assert for_terminal("Zoë ☃ 日本") == "Zoë ☃ 日本"
    assert [for_spreadsheet(text) for text in ("=1+1", "\uff1d1", "a=b")] == ["'=1+1", "'\uff1d1", "a=b"]
    assert for_markdown("<b>[x](y)\n# z") == "\\<b>[x\\](y) # z"


def test_a_report_does_not_follow_links_out_of_a_run(run, capsys, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "page").write_text("mine")
    (run / "report.html").symlink_to(elsewhere / "page")
    os.link(elsewhere / "page", run / "report.md")
    (run / "tables").symlink_to(elsewhere)
    (run / "figures").mkdir()
    for name in (".report_files", "figures/success.png", ".report.html.new"):
        os.mkfifo(run / name)
    assert run_command(capsys, "report", run)[0] == 0
    assert (elsewhere / "page").read_text() == "mine"
    assert [path.name for path in elsewhere.iterdir()] == ["page"]


def test_stray_folders_beside_checkpoints_and_rollouts_are_left_alone(run, capsys):
    for folder, name in (
        ("checkpoints", "iteration_0004.bak"),
        ("checkpoints", "iteration_x"),
        ("rollouts", "iteration_x.json.gz"),
    ):
        (run / folder / name).mkdir()
    assert Checkpoints(run / "checkpoints").newest() == run / "checkpoints" / "iteration_0004"
    assert run_command(capsys, "eval", f"run={run}")[0] == 0
    assert run_command(capsys, "inspect", run)[0] == 0
    train(run, "resume=auto", "trainer.iterations=5")


def test_a_manifest_does_not_lead_out_of_its_checkpoint(run, capsys):
    checkpoint = run / "checkpoints" / "iteration_0004"
    (checkpoint / "state.json").unlink()
    (checkpoint / "state.json").symlink_to("/dev/zero")
    shutil.rmtree(run / "checkpoints" / "iteration_0000")
    assert "state.json cannot be read: it is a link" in refused(capsys, "eval", f"run={run}")


@pytest.mark.parametrize("out", ["no/such/folder/out.json", "."])
def test_a_result_that_cannot_be_written_is_found_out_first(run, capsys, tmp_path, out):
    status, shown, err = run_command(capsys, "eval", f"run={run}", f"out={tmp_path / out}")
    assert (status, shown.count("success")) == (2, 0)
    assert f"Cannot write {tmp_path / out}" in err


def test_checkpoints_are_for_those_whom_the_umask_lets_read(tmp_path):
    before = os.umask(0o027)
    try:
        train(tmp_path / "run", "trainer.iterations=1")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run" / "checkpoints").rglob("*")}
    assert modes == {0o750, 0o640}
