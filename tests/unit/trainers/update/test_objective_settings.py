"""Objectives are choices of `objective`: ours have a page that names their options."""

import pytest

from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.processes import ALONE
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.learners.policy_gradient import PolicyGradientLearner
from hgpo_gym.trainers.learners.validate import validate_estimator
from hgpo_gym.trainers.update.objectives import OBJECTIVES, preferred_aggregation
from tests.support import ROOT

PAGES = ROOT / "docs" / "objectives"


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


def test_the_step_that_capo_judges_is_the_trainers():
    capo = load_config("config", ["objective=capo", "trainer.learning_rate=0.5"])["objective"]
    assert capo["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["objective.dual_clip=0.5"], "dual_clip=0.5: the largest ratio must be above 1"),
        (["objective=gbpo"], "algo=gbpo, or objective=bpo for any other"),
        (["objective=hispo", "objective.delta_sequence=1", "objective.delta_token=1",
          "correction=token"], "objective=hispo weighs trainer against engine itself"),
        (["correction=token_mask", "correction.low=5"], "low=5, high=3.0"),
    ],
)  # fmt: skip
def test_a_run_refuses_what_cannot_be_before_it_begins(overrides, message):
    with pytest.raises(ValueError, match=message):
        PolicyGradientLearner(load_run(overrides), ALONE, Progress())


def test_an_estimator_that_returns_what_an_objective_reads_suits_it():
    run = load_run(["objective=gbpo", "algo=gbpo"])
    assert "target" in validate_estimator(run).extras
    PolicyGradientLearner(run, ALONE, Progress())
