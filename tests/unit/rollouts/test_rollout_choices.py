"""The files in configs/ of samplers, shapings and teams hold their options, with the defaults of the code."""

from inspect import Parameter
from pathlib import Path

import pytest
import yaml

import hgpo_gym
from hgpo_gym.rollouts.samplers import SAMPLERS
from hgpo_gym.rollouts.shaping import SHAPERS
from hgpo_gym.rollouts.teams import TEAMS

CONFIGS = Path(hgpo_gym.__file__).parent / "configs"
REGISTRIES = {"sampler": SAMPLERS, "shaping": SHAPERS, "team": TEAMS}


def plain(value):
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    ("group", "path"),
    [(group, path) for group in REGISTRIES for path in sorted((CONFIGS / group).glob("*.yaml"))],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_a_file_has_every_option_with_its_default(group, path):
    settings = yaml.safe_load(path.read_text())
    assert settings.pop("name") == path.stem
    options = REGISTRIES[group].options(path.stem)
    assert settings.keys() == options.keys()
    for name, value in settings.items():
        if options[name].default is Parameter.empty:
            assert isinstance(value, str)
            assert value == "???" or value.startswith("${")
        else:
            assert value == plain(options[name].default)


@pytest.mark.parametrize("group", REGISTRIES)
def test_every_choice_of_this_package_has_a_file(group):
    assert {path.stem for path in (CONFIGS / group).glob("*.yaml")} == set(REGISTRIES[group])
