"""Objectives are choices of `objective`: ours have a file with their defaults and a page that names their options."""

from inspect import Parameter
from pathlib import Path

import pytest
import yaml

import hgpo_gym
from hgpo_gym.config.compose import load_config
from hgpo_gym.trainers.update.objectives import OBJECTIVES, OWN, preferred_aggregation

FILES = Path(hgpo_gym.__file__).parent / "configs" / "objective"
PAGES = Path(__file__).parents[1] / "docs" / "objectives"


@pytest.mark.parametrize("name", OWN)
def test_its_file_has_its_options_with_their_defaults(name):
    """But for those that follow a setting of the trainer."""
    written = yaml.safe_load((FILES / f"{name}.yaml").read_text())
    options = OBJECTIVES.options(name)
    assert written.pop("name") == name
    assert written.keys() == options.keys()
    for option, value in written.items():
        default = options[option].default
        if not str(value).startswith("${trainer."):
            assert value == ("???" if default is Parameter.empty else default)


@pytest.mark.parametrize("name", OWN)
def test_it_has_a_page_that_names_its_options_and_what_they_are_compared_by(name):
    page = (PAGES / f"{name}.md").read_text()
    for option in OBJECTIVES.options(name):
        assert f"| `{option}` |" in page
    assert "`clip_fraction`" in page
    assert "`kl_behaviour`" in page
    row = next(line for line in (PAGES / "index.md").read_text().splitlines() if f"[`{name}`]" in line)
    assert f"`{preferred_aggregation(name)}`" in row


def test_the_old_bounds_are_those_of_ppo_clip():
    objective = load_config("config", ["trainer.clip_high=0.28"])["objective"]
    assert (objective["name"], objective["clip_low"], objective["clip_high"]) == ("ppo_clip", 0.2, 0.28)
    capo = load_config("config", ["objective=capo", "trainer.learning_rate=0.5"])["objective"]
    assert capo["learning_rate"] == 0.5
