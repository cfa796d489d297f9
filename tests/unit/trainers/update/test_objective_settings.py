"""Objectives are choices of `objective`: ours have a file with their defaults and a page that names their options."""

from inspect import Parameter
from pathlib import Path

import pytest
import yaml

import hgpo_gym
from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.processes import ALONE
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.learners.policy_gradient import PolicyGradientLearner
from hgpo_gym.trainers.learners.validate import validate_estimator
from hgpo_gym.trainers.run import Run
from hgpo_gym.trainers.update.objectives import OBJECTIVES, preferred_aggregation
from tests.support import ROOT
from tests.support.small_runs import settings

FILES = Path(hgpo_gym.__file__).parent / "configs" / "objective"
PAGES = ROOT / "docs" / "objectives"


def test_its_file_has_its_options_with_their_defaults(subtests):
    """But for those that follow a setting of the trainer."""
    for name in [path.stem for path in FILES.glob("*.yaml")]:
        with subtests.test(name):
            written = yaml.safe_load((FILES / f"{name}.yaml").read_text())
            options = OBJECTIVES.options(name)
            assert written.pop("name") == name
            assert written.keys() == options.keys()
            for option, value in written.items():
                default = options[option].default
                if not str(value).startswith("${trainer."):
                    assert value == ("???" if default is Parameter.empty else default)


def test_it_has_a_page_that_names_its_options_and_what_they_are_compared_by(subtests):
    for name in {path.stem for path in PAGES.glob("*.md")} & set(OBJECTIVES):
        with subtests.test(name):
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


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["objective.dual_clip=0.5"], "dual_clip=0.5: the largest ratio must be above 1"),
        (["objective=gbpo"], "algo=gbpo, or objective=bpo for any other"),
        (["objective=hispo", "objective.delta_sequence=1", "objective.delta_token=1",
          "trainer.importance_correction=token"], "objective=hispo weighs trainer against engine itself"),
        (["trainer.importance_correction=token_mask", "trainer.importance_options={low: 5}"], "low=5, high=3.0"),
    ],
)  # fmt: skip
def test_a_run_refuses_what_cannot_be_before_it_begins(overrides, message):
    with pytest.raises(ValueError, match=message):
        PolicyGradientLearner(load_run(overrides), ALONE, Progress())


def test_an_estimator_that_returns_what_an_objective_reads_suits_it():
    run = load_run(["objective=gbpo", "algo=gbpo"])
    assert "target" in validate_estimator(run).extras
    PolicyGradientLearner(run, ALONE, Progress())


def test_bounds_that_the_objective_does_not_read_are_told(tmp_path):
    said = []

    class Lines(Progress):
        def line(self, text):
            said.append(text)

    def told(name, *options):
        said.clear()
        with Run(settings(tmp_path / name, *options), Lines()):
            return [line for line in said if "has no effect" in line]

    assert told("ppo", "trainer.clip_low=0.9") == []
    assert told("default", "objective=gspo") == []
    assert told("followed", "objective=bpo", "objective.clip_low=0.9", "trainer.clip_low=0.9") == []
    (high,) = told("recipe", "recipe=dapo_short", "trainer.clip_high=0.9")
    assert "trainer.clip_high=0.9 has no effect: objective=ppo_clip has its own, objective.clip_high=0.28." in high
    (low,) = told("gspo", "objective=gspo", "trainer.clip_low=0.9")
    assert "trainer.clip_low=0.9 has no effect: objective=gspo has its own, objective.clip_low=0.0003." in low
    low, high = told("sapo", "objective=sapo", "trainer.clip_low=0.9", "trainer.clip_high=0.3")
    assert "trainer.clip_low=0.9 has no effect: objective=sapo has no such bound." in low
    assert "trainer.clip_high=0.3" in high
