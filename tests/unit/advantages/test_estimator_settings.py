"""Estimators are choices of `algo`, those that users register too; pages name their options."""

from inspect import signature

import pytest

from hgpo_gym.advantages import ESTIMATORS, needed_with
from hgpo_gym.analysis.estimator_bias.run import BiasResult
from hgpo_gym.config.choices import choices
from hgpo_gym.config.compose import ConfigError, load_config, load_configs
from tests.support import ROOT


@pytest.fixture
def mine(monkeypatch):
    def mine(batch, *, scale=1.0, norm="mean_norm", transform=abs):
        return scale * batch.reward

    monkeypatch.setitem(ESTIMATORS._all, "mine", mine)


@pytest.mark.usefixtures("mine")
def test_its_options_are_settings():
    assert "mine" in choices()["algo"]
    config = load_config("config", ["algo=mine", "algo.scale=2.5"])
    assert config["algo"] == {"name": "mine", "scale": 2.5, "norm": "mean_norm"}
    assert config["run_dir"] == "runs/signpost_maze-mine-seed0"
    with pytest.raises(ConfigError, match=r"algo\.scael.*algo\.scale"):
        load_config("config", ["algo=mine", "algo.scael=2"])
    with pytest.raises(ConfigError, match=r"algo\.scale=many: expected a number"):
        load_config("config", ["algo=mine", "algo.scale=many"])


def test_an_option_without_a_default_has_to_be_given(monkeypatch):
    monkeypatch.setitem(ESTIMATORS._all, "demanding", lambda batch, *, weight: weight * batch.reward)
    with pytest.raises(ConfigError, match=r"algo\.weight"):
        load_configs("config", ["algo=demanding"], [{}])
    assert load_config("config", ["algo=demanding", "algo.weight=1"])["algo"]["weight"] == 1


def test_a_file_changes_other_groups_and_the_options_are_those_of_the_function(monkeypatch):
    monkeypatch.setitem(ESTIMATORS._all, "vineppo", lambda batch, *, gamma=0.9, other=1: other * batch.reward)
    config = load_config("config", ["algo=vineppo"])
    assert config["algo"] == {"name": "vineppo", "gamma": 0.9, "other": 1}
    assert config["sampler"]["name"] == "restarts"


def test_the_page_of_an_estimator_names_its_options(subtests):
    pages = {path.stem for path in (ROOT / "docs" / "estimators").glob("*.md")}
    for name in pages & set(ESTIMATORS):
        with subtests.test(name):
            page = (ROOT / "docs" / "estimators" / f"{name}.md").read_text()
            for option in list(signature(ESTIMATORS[name]).parameters)[1:]:
                assert f"`{option}`" in page


@pytest.mark.parametrize(
    ("options", "fitted"), [({}, True), ({"norm": "mean_std_norm"}, True), ({"norm": "mean_norm"}, False)]
)
def test_a_measurement_fits_a_scale_unless_the_estimator_has_the_rewards_unit(options, fitted, monkeypatch):
    monkeypatch.setitem(ESTIMATORS._all, "mine", lambda batch, **options: batch.reward)
    assert BiasResult("mine", options).without_unit is fitted


def test_an_option_named_base_may_be_no_estimator(monkeypatch):
    monkeypatch.setitem(ESTIMATORS._all, "mine", lambda batch, *, base="mean": batch.reward * (base == "mean"))
    assert needed_with("mine", {"base": "mean"}) == {}
    assert needed_with("salt", {"base": "vineppo"}) == {"action": "salt", "value": "vineppo"}
