"""The command that installs a missing extra works where the package came from."""

import json
from importlib import metadata

import pytest

from hgpo_gym.extras import install_command
from tests.support.packages import python

GUARDED = {
    "alfworld": ("envs.alfworld.textworld_engine", "alfworld"),
    "babyai": ("envs.babyai.env", "minigrid"),
    "sb3": ("trainers.learners.sb3", "stable_baselines3"),
    "scienceworld": ("envs.scienceworld.env", "scienceworld"),
    "search": ("envs.search.env", "bm25s"),
    "server": ("client", "httpx"),
    "textarena": ("envs.textarena_games", "textarena"),
    "textworld": ("envs.textworld_games", "textworld"),
    "webshop": ("envs.webshop.env", "rapidfuzz"),
}
"""For each extra, a module of this package that cannot do without it, and a package of it."""
IMPORT_WITHOUT = """
import importlib, json, sys
for module, package in json.loads(sys.argv[1]).values():
    sys.modules[package] = None
    try:
        importlib.import_module(f"hgpo_gym.{module}")
        print("imported")
    except ModuleNotFoundError as error:
        print(error)
"""


def test_a_missing_package_is_named_with_the_command_that_installs_its_extra():
    lines = python("-c", IMPORT_WITHOUT, json.dumps(GUARDED)).stdout.splitlines()
    for line, (extra, (_, package)) in zip(lines, GUARDED.items(), strict=True):
        assert line.endswith(f" needs the package {package}: {install_command(extra)}"), (extra, line)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'hgpo_gym[lora]'"),
        ({"url": "file:///src/hgpo", "dir_info": {}}, "pip install '/src/hgpo[lora]'"),
        ({"url": "file:///src/hgpo", "dir_info": {"editable": True}}, "pip install --editable '/src/hgpo[lora]'"),
        ({"url": "file:///my%20src/hgpo", "dir_info": {}}, "pip install '/my src/hgpo[lora]'"),
        (
            {"url": "https://host/hgpo", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'hgpo_gym[lora] @ git+https://host/hgpo'",
        ),
        ({"url": "https://host/hgpo.whl", "archive_info": {}}, "pip install 'hgpo_gym[lora] @ https://host/hgpo.whl'"),
    ],
)
def test_the_command_names_what_was_installed(origin, command, monkeypatch, tmp_path):
    folder = tmp_path / "hgpo_gym-1.dist-info"
    folder.mkdir()
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.PathDistribution(folder))
    assert install_command("lora") == command


def test_a_checkout_that_is_not_installed_is_the_present_folder(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("lora") == "pip install '.[lora]'"
