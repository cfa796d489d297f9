"""The first contact: workflows that call commands that were run here, one version, a package that declares types."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.resources import files

import pytest
import yaml

import hgpo_gym
from tests.support import ROOT

pytestmark = pytest.mark.smoke
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
[PHONY] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
TARGETS = PHONY.split()


def runs(job):
    """Return the commands of a job's steps, once for each target of its matrix."""
    for step in job["steps"]:
        if "run" in step:
            for target in job.get("strategy", {}).get("matrix", {}).get("target", [""]):
                yield step["run"].replace("${{ matrix.target }}", target)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_nothing_but_targets_of_the_makefile(path):
    commands = [command for job in yaml.safe_load(path.read_text())["jobs"].values() for command in runs(job)]
    assert commands
    assert {command.removeprefix("make ") for command in commands} <= set(TARGETS)
    assert all(command.startswith("make ") for command in commands)


def test_the_workflows_do_what_has_to_hold_before_a_change_lands():
    commands = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    targets = {word for command in commands for word in command.split() if not word.startswith("-")}
    (tests,) = (path for path in WORKFLOWS if path.stem == "tests")
    jobs = yaml.safe_load(tests.read_text())["jobs"].values()
    assert {command.removeprefix("make ") for job in jobs for command in runs(job)} == targets


def test_the_version_is_written_once():
    written = [
        path.relative_to(ROOT).as_posix()
        for path in (*(ROOT / "hgpo_gym").rglob("*.py"), ROOT / "pyproject.toml", ROOT / "CITATION.cff")
        if re.search(rf"version.*{re.escape(hgpo_gym.__version__)}\b", path.read_text())
    ]
    assert written == ["hgpo_gym/__init__.py"]
    assert hgpo_gym.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_others_may_use_the_types():
    assert (files("hgpo_gym") / "py.typed").is_file()


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_the_front_door_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_command_starts_where_no_extra_is_installed():
    """`pip install hgpo_gym` alone: whatever only extras bring cannot be imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements):
        return {re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-") for requirement in requirements}

    extras = set().union(*map(names, project["optional-dependencies"].values()))
    missing = extras - names(project["dependencies"]) - {"hgpo-gym"}
    distributions = metadata.packages_distributions()
    modules = [name for name, of in distributions.items() if missing & {one.lower().replace("_", "-") for one in of}]
    assert "torch" in modules
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules})); from hgpo_gym.cli.main import main; main(['envs'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, "hgpo_gym/ALFWorld-v0" in result.stdout) == (0, True), result.stderr
