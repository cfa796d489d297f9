"""The command that installs a missing extra works where the package came from."""

import json
from importlib import metadata

import pytest

from hgpo_gym.extras import install_command


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
