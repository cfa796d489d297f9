"""What the documentation says is so: its code runs, its links lead somewhere, its commands parse."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hgpo_gym.cli import OWN_ARGUMENTS, main, make_parser
from tests.serving import ServerProcess

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "docs/estimators/bias.md",
        "docs/memory.md",
        "docs/update.md",
        "docs/server.md",
        "docs/published_settings.md",
        "docs/distributed.md",
        "benchmarks/README.md",
        "benchmarks/alfworld_native.md",
    )
]
BLOCKS = [
    (page.name, language, text)
    for page in PAGES
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
]
CODE = [(page, text) for page, language, text in BLOCKS if language == "python" and page != "server.md"]
SERVED = [(language, text) for page, language, text in BLOCKS if language and page == "server.md"]
LAUNCHED = re.compile(r"^(torchrun|accelerate launch) .* -m hgpo_gym ")
"""By a launcher of several processes; what follows is as after hgpo-gym."""
COMMANDS = [
    line.partition("#")[0].strip()
    for _, language, text in BLOCKS
    for line in (LAUNCHED.sub("hgpo-gym ", line) for line in text.replace("\\\n", " ").splitlines())
    if not language and line.startswith("hgpo-gym ") and "--help" not in line
]


@pytest.mark.parametrize(("page", "code"), CODE)
def test_code_blocks_run(page, code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{page}:\n{code}\n{result.stderr}"


def test_what_the_page_of_the_server_says_runs_against_one():
    """The blocks for the shell in one shell, those in Python each by itself."""
    with ServerProcess("--env", "hgpo_gym/SignpostMaze-v0", "split=[train,test]") as server:
        served = [(language, text.replace("http://127.0.0.1:8000", server.url)) for language, text in SERVED]
        shell = "set -e\n" + "".join(text for language, text in served if language == "bash")
        answers = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
        for language, text in served:
            if language == "python":
                subprocess.run([sys.executable, "-c", text], check=True)
        assert server.open_sessions() == 0
    assert '"task_ids":["red-red-blue","red-red-green","red-blue-red"]' in answers
    assert '{"turn": 2, "observation": "You are in a bare corridor."' in answers
    assert '"unknown-option"' in answers


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
