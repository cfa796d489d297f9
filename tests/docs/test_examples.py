"""The examples, as a reader would start them. That of verl is run in tests/verl."""

import re
import subprocess

import pytest

from tests.support import ROOT, warm

pytestmark = pytest.mark.timeout(600)

EXAMPLES = ROOT / "examples"


def run(name, *arguments):
    done = subprocess.run([*warm.python(), EXAMPLES / name, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_are_run_somewhere():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "plain_python.py", "tool_calls.py", "trl_hgpo.py", "verl_advantages.py", "verl_plugin.py",
    }  # fmt: skip


def test_plain_python():
    steps, least, most = re.search(r"(\d+) steps of 8 .* from (\S+) to (\S+)\.\n", run("plain_python.py")).groups()
    assert int(steps) > 8
    assert float(least) < 0 < float(most)


def test_tool_calls():
    """The scripted agent writes one call that is not JSON, reads so, and finds its way."""
    output = run("tool_calls.py")
    assert output.count("The arguments are not JSON") == 1
    assert output.endswith("Solved, total reward 10.\n")


def test_trl(tmp_path):
    pytest.importorskip("trl")
    output = run("trl_hgpo.py", "--updates", "3", "--out", str(tmp_path))
    updates = re.findall(r"update (\d): mean reward (\S+), gradient norm (\S+)\n", output)
    assert [int(number) for number, *_ in updates] == [1, 2, 3]
    assert max(float(reward) for _, reward, _ in updates) > 0
    assert max(float(norm) for *_, norm in updates) > 0
