"""docs/your_own_environment.md, as a reader would follow it: the commands in order, the files as they are shown."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = (ROOT / "docs" / "your_own_environment.md").read_text()
BLOCKS = re.findall(r"([^\n]*)\n\n```(\w*)\n(.*?)^```", TUTORIAL, flags=re.DOTALL | re.MULTILINE)
SHORT = [
    "trainer.iterations=1",
    "rollout.num_tasks=2",
    "rollout.group_size=2",
    "warmstart.episodes=8",
    "evaluation.decoding_seeds=1",
]
"""A run of seconds instead of one of a minute."""
PROGRAMS = {
    "hgpo-gym": ["-m", "hgpo_gym"],
    "pip": ["-m", "pip"],
    "python": [],
    "tw-make": [Path(sys.executable).with_name("tw-make")],
}


@pytest.fixture
def reader(tmp_path):
    """An environment of Python's in which a package can be installed, with all that is installed here."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "here.pth").write_text(f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n")
    return Reader(python, tmp_path)


class Reader:
    """Follows the page: runs commands, writes files, in the folder that `cd` has led to."""

    def __init__(self, python, folder):
        self.python, self.folder = python, folder
        self.environment = {**os.environ, "HGPO_GYM_CACHE": str(folder / "cache")}
        self.environment.pop("PYTHONPATH", None)

    def run(self, line):
        name, *arguments = shlex.split(line)
        if name == "cd":
            self.folder /= arguments[0]
            return ""
        more = {"pip": ["--no-deps", "--no-build-isolation", "--quiet"]}.get(name, [])
        more += SHORT if arguments[0] == "train" else []
        command = [self.python, *PROGRAMS[name], *arguments, *more]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, input="", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, before, text):
        """What the sentence before a block says: the whole of a file, or lines of it."""
        file = self.folder / re.findall(r"`([\w/]+\.py)`", before)[0]
        whole = file.read_text()
        if before.startswith("The whole"):
            whole = text
        else:
            for line in text.splitlines():
                name = line.partition("=")[0]
                whole, found = re.subn(rf"^{name}=.*$", line, whole, flags=re.MULTILINE)
                assert found == 1, line
        file.write_text(whole)


def test_the_page_can_be_followed(reader):
    said = {}
    files = 0
    for before, language, text in BLOCKS:
        if not language:
            for line in text.splitlines():
                said[line] = reader.run(line)
        elif re.search(r"`[\w/]+\.py`", before):
            reader.write(before, text)
            files += 1
        elif language == "python":
            subprocess.run([reader.python, "-c", text + CHECK], env=reader.environment, check=True)
    assert files == 3
    assert "radio/Radio-v0" in said["hgpo-gym envs"]
    assert "Success" in said["hgpo-gym train env=radio algo=hgpo trainer.iterations=30"]
    assert "radio-hgpo-seed0, iteration 1" in said["hgpo-gym inspect runs/radio-hgpo-seed0 --task 1"]


CHECK = """
import gymnasium
from hgpo_gym.envs import check_text_env
check_text_env(gymnasium.make("me/Cliff-v0"))
"""


def test_the_lines_that_are_written_are_as_many_as_the_page_says():
    files = {
        re.findall(r"`([\w/]+\.py)`", before)[0]: text for before, _, text in BLOCKS if re.search(r"\.py`", before)
    }
    written = [line for name, text in files.items() if "test" not in name for line in text.splitlines() if line]
    new_test = files["tests/test_radio.py"].splitlines()[-6:]
    assert new_test[0] == "def test_an_episode():"
    assert f"with {len(written) + len(new_test)} lines of one's own" in TUTORIAL
    assert len(written) + len(new_test) <= 40


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TUTORIAL):
        assert (ROOT / "docs" / target).exists(), target
