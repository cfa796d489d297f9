"""What the documentation says is so: its code runs, its links lead somewhere, its commands parse."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hgpo_gym.cli import OWN_ARGUMENTS, main, make_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "docs/estimators.md",
        "docs/published_settings.md",
        "benchmarks/README.md",
        "benchmarks/alfworld_native.md",
    )
]
BLOCKS = [
    (page.name, language, text)
    for page in PAGES
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
]
CODE = [(page, text) for page, language, text in BLOCKS if language == "python"]
COMMANDS = [
    line.partition("#")[0].strip()
    for _, language, text in BLOCKS
    for line in text.replace("\\\n", " ").splitlines()
    if not language and line.startswith("hgpo-gym ") and "--help" not in line
]


@pytest.mark.parametrize(("page", "code"), CODE)
def test_code_blocks_run(page, code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{page}:\n{code}\n{result.stderr}"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_settings_that_exist(command, capsys):
    """Every documented command is understood: up to --show-config, or its own arguments where it has no settings."""
    _, *arguments = shlex.split(command)
    if arguments[0] in OWN_ARGUMENTS:
        make_parser().parse_args(arguments)
        return
    main([*arguments, "--show-config"])
    assert "run_dir" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
