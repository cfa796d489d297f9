"""Run directories of somebody else, damaged or made to harm: each file is read within bounds and named where it is not
what a run writes, and nothing in it is obeyed by a terminal, a spreadsheet or a page."""

import csv
import gzip
import json
import os
import random
import re
import shutil
import stat
from contextlib import nullcontext

import pytest
import yaml

from hgpo_gym.plain_text import for_markdown, for_spreadsheet, for_terminal
from hgpo_gym.runs.checkpoints import Checkpoints
from hgpo_gym.runs.run_files import CONFIG_BYTES, DamagedError, read_yaml
from tests.support.commands import run as run_command
from tests.support.small_runs import train

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    train(folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def refused(capsys, *arguments):
    """What a command says that ends with exit status 2."""
    status, _, err = run_command(capsys, *arguments)
    assert status == 2, err
    return err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(BOMB, "more than 20,000 values", id="aliases of aliases"),
        pytest.param("a: " + "[" * 50_000, "nested too deep|maximum nesting depth", id="lists in lists without end"),
        pytest.param("- " * 50_000, "nested too deep|maximum nesting depth", id="lists in lists by dashes"),
        pytest.param("a: &a [*a]", "nested too deep|recursive", id="a list in itself"),
        pytest.param("a: " + "[" * 100 + "]" * 100, "nested too deep", id="lists in lists"),
        pytest.param("a: " + "x" * CONFIG_BYTES, "more than 262,144 bytes", id="too long"),
        pytest.param("a: " + "9" * 5000, "digit", id="a number of 5,000 digits"),
        pytest.param("a: 1" + "0" * 400, "no mapping of names", id="a number for names"),
        pytest.param("a: 2026-99-99", "month", id="no such day"),
        pytest.param("a: !!python/object/apply:os.system ['true']", "could not determine a constructor", id="a call"),
        pytest.param("a: !!binary aGVsbG8=", "no mapping of names", id="bytes"),
        pytest.param("1: 2", "no mapping of names", id="a number as a name"),
        pytest.param("- a", "no mapping of names", id="a list"),
        pytest.param("", "no mapping of names", id="nothing"),
    ],
)
def test_a_hostile_configuration_is_refused_by_name(run, capsys, content, reason):
    (run / "config.yaml").write_text(content)
    with pytest.raises(DamagedError, match=rf"config\.yaml is damaged: .*({reason})"):
        read_yaml(run / "config.yaml")
    for command in (["report", run], ["inspect", run], ["export", run, "--to", run / "out"], ["eval", f"run={run}"]):
        assert "config.yaml is damaged" in refused(capsys, *command)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(run, capsys):
    (run / "config.yaml").unlink()
    os.mkfifo(run / "config.yaml")
    assert "config.yaml is damaged: it is no plain file" in refused(capsys, "report", run)


def hostile_values(choice):
    return choice.choice(
        [None, True, -1, 10**400, 1e308, float("nan"), "", "abc", "9" * 5000, [], [[]], {}, {"a": [1]}, [None] * 3]
    )


def places(value, path=()):
    """Every place in JSON-like data."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from places(part, (*path, name))


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def test_no_value_in_a_runs_files_ends_a_report_or_an_inspection_in_a_traceback(run, capsys, pictures):
    choice = random.Random(0)
    rollout = run / "rollouts" / "iteration_0004.json.gz"
    files = {
        run / "summary.json": json.loads,
        run / "metrics.jsonl": lambda text: [json.loads(line) for line in text.splitlines()],
        run / "config.yaml": yaml.safe_load,
        run / "launches.jsonl": lambda text: [json.loads(line) for line in text.splitlines()],
        rollout: json.loads,
    }
    for file, parse in files.items():
        sound = file.read_bytes()
        content = parse(gzip.decompress(sound) if file == rollout else sound)
        found = list(places(content))
        said = 0
        for number in range(24 if file == rollout else 10):
            value = changed(content, choice.choice(found), hostile_values(choice))
            text = (
                "\n".join(map(json.dumps, value)) + "\n"
                if file.suffix == ".jsonl" and isinstance(value, list)
                else json.dumps(value)
            )
            file.write_bytes(gzip.compress(text.encode()) if file == rollout else text.encode())
            command = ["inspect", run, "--task", "1"] if file == rollout else ["report", run]
            with pictures() if number < 2 else nullcontext():
                status, _, err = run_command(capsys, *command)  # raises what the command does not explain
            assert status in (0, 2)
            said += file.name in err
            assert status == 0 or file.name in err or "No finished run" in err, err
        assert said, file  # some of them must be found out
        file.write_bytes(sound)


def test_a_whole_number_that_no_float_holds_is_damage(run, capsys):
    (run / "summary.json").write_text(json.dumps({"iterations": 10**400}))
    assert "summary.json is damaged: int too large" in refused(capsys, "report", run)


def test_a_rollout_that_unpacks_without_end_is_refused(run, capsys, monkeypatch):
    monkeypatch.setattr("hgpo_gym.runs.run_files.JSON_BYTES", 10**6)
    (run / "rollouts" / "iteration_0004.json.gz").write_bytes(gzip.compress(b" " * 10**7))
    assert "iteration_0004.json.gz is damaged: it has more than 1,000,000 bytes" in refused(capsys, "inspect", run)


HOSTILE = (
    "\x1b]0;owned\x07=cmd|'/C calc'!A0 <img src=x onerror=alert(1)> ![x](http://example.org/) $\\frac$ \x9b31m\u202e"
)


def test_what_a_run_is_called_is_not_obeyed(run, capsys):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["env_name"], settings["algo"]["name"] = HOSTILE, f"={HOSTILE}"
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    launch = json.loads((run / "launches.jsonl").read_text()) | {"command": f"```\n{HOSTILE}"}
    (run / "launches.jsonl").write_text(json.dumps(launch) + "\n")
    status, out, err = run_command(capsys, "report", run)
    assert (status, err) == (0, "")
    assert not set("\x1b\x07\x9b\u202e") & set(out)
    assert "\\x1b]0;owned\\x07" in out
    markdown = (run / "report.md").read_text()
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    assert "````" in markdown  # a fence that the command does not close
    assert "<img" not in outside.replace("\\<img", "")
    assert "![x](" not in outside
    assert "<img src=x" not in (run / "report.html").read_text()
    cells = [cell for file in (run / "tables").glob("*.csv") for row in csv.reader(file.open()) for cell in row]
    assert any("owned" in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\x1b"))]


def test_text_that_would_be_obeyed():
    assert for_terminal("\x1b[31mred\u202e\ud800\ttab\n") == "\\x1b[31mred\\u202e\\ud800\ttab\n"
    assert for_terminal("Zoë ☃ 日本") == "Zoë ☃ 日本"
    assert [for_spreadsheet(text) for text in ("=1+1", "-2", "a=b")] == ["'=1+1", "'-2", "a=b"]
    assert for_markdown("<b>[x](y)\n# z") == "\\<b>[x\\](y) # z"


def test_a_report_does_not_follow_links_out_of_a_run(run, capsys, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "page").write_text("mine")
    (run / "report.html").symlink_to(elsewhere / "page")
    (run / "tables").symlink_to(elsewhere)
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
    assert "state.json is no file in it" in refused(capsys, "eval", f"run={run}")


@pytest.mark.parametrize("out", ["no/such/folder/out.json", "."])
def test_a_result_that_cannot_be_written_is_found_out_first(run, capsys, tmp_path, out):
    status, said, err = run_command(capsys, "eval", f"run={run}", f"out={tmp_path / out}")
    assert (status, said.count("success")) == (2, 0)
    assert f"Cannot write {tmp_path / out}" in err


def test_checkpoints_are_for_those_whom_the_umask_lets_read(tmp_path):
    before = os.umask(0o027)
    try:
        train(tmp_path / "run", "trainer.iterations=1")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run" / "checkpoints").rglob("*")}
    assert modes == {0o750, 0o640}
