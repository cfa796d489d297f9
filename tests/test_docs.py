"""What the documentation says is so: its code runs, its links lead somewhere, its commands parse."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hgpo_gym.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", ROOT / "benchmarks" / "alfworld_native.md"]
CODE = [
    (page.name, number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL), start=1)
]
COMMANDS = [
    line.partition("#")[0].strip()
    for page in PAGES
    for block in re.findall(r"```\n(.*?)```", page.read_text(), flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("hgpo-gym ") and "--help" not in line
]


@pytest.mark.parametrize(("page", "number", "block"), CODE, ids=[f"{page}-{number}" for page, number, _ in CODE])
def test_code_blocks_run(page, number, block):
    result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{page}, block {number}:\n{result.stderr}"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_settings_that_exist(command, capsys):
    """Every documented command is understood, up to --show-config."""
    _, *arguments = shlex.split(command)
    main([*arguments, "--show-config"])
    assert "run_dir" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
