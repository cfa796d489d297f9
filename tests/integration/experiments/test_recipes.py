"""Recipes: a file names algorithm, objective, sampler and shaping together; comparisons take them."""

import pytest

from hgpo_gym.config.choices import choices
from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.experiments.compare import run_comparison
from hgpo_gym.experiments.plan import plan, variants
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.learners.validate import validate_estimator
from hgpo_gym.trainers.update.loss import Loss
from tests.support.small_runs import SETTINGS


@pytest.mark.parametrize("recipe", choices()["recipe"])
def test_every_recipe_makes_valid_settings(recipe):
    run = load_run([f"recipe={recipe}"])
    Loss(run.trainer, run.objective, validate_estimator(run).extras)
    assert run != load_run([])


def test_a_recipe_chooses_of_several_groups_and_the_command_line_goes_on_from_there():
    run = load_run(["recipe=dapo", "objective.clip_high=0.3"])
    assert (run.algo.name, run.sampler.name, run.shaping.name) == ("grpo", "dynamic", "overlong")
    assert run.objective.options["clip_high"] == 0.3
    assert load_run(["recipe=dr_grpo"]).trainer.loss_aggregation == "sequence_sum"


def test_a_comparison_takes_recipes_beside_algorithms(tmp_path):
    overrides = [
        *SETTINGS,
        "algos=[grpo,{recipe: dapo_short},{name: hgpo, objective: gspo}]",
        f"out={tmp_path}",
        "jobs=0",
    ]
    run_comparison(load_config("compare", overrides), overrides, None, Progress())
    labels = [
        variant.label for variant in variants(["grpo", {"recipe": "dapo_short"}, {"name": "hgpo", "objective": "gspo"}])
    ]
    assert labels == ["grpo", "recipe_dapo_short", "hgpo-objective_gspo"]


def test_a_recipe_with_the_name_of_an_algorithm_has_separate_runs(tmp_path):
    planned = plan(["dr_grpo", {"recipe": "dr_grpo"}], 1, tmp_path, SETTINGS)
    assert [run.settings.run_dir.name for run in planned] == ["dr_grpo-seed0", "recipe_dr_grpo-seed0"]
    assert [run.settings.trainer.loss_aggregation for run in planned] == [None, "sequence_sum"]
    with pytest.raises(ValueError, match="give at least one, and each of them once"):
        variants([{"name": "hgpo", "K": 1}, {"name": "hgpo", "K": "1"}])


@pytest.mark.parametrize(
    ("entry", "message"),
    [({"gamma": 0.9}, "names no algorithm"), ({"name": "grpo", "recipe": "dapo"}, "names an algorithm and a recipe")],
)
def test_an_entry_names_an_algorithm_or_a_recipe(entry, message):
    with pytest.raises(ValueError, match=message):
        variants([entry])
