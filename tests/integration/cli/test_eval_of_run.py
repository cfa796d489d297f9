"""`hgpo-gym eval run=RUN`: the run's settings; changes by the command line are named."""

import json

import pytest
import yaml

from hgpo_gym.analysis.report.load import load_runs
from hgpo_gym.config.compose import load_config
from hgpo_gym.config.of_run import load_evaluation, without_effect
from hgpo_gym.runs.directory import read_config, read_summary
from tests.support.commands import run
from tests.support.small_runs import finished

NOT_THE_DEFAULTS = ("env=sokoban", "env.max_episode_steps=7", "memory.window=4", "memory.history_length=1", "seed=3")


SMALL = [
    "model=tabular", "rollout.num_tasks=2", "rollout.group_size=2", "trainer.iterations=1",
    "evaluation.decoding_seeds=1", "evaluation.temperature=1.0", "env.levels=12",
]  # fmt: skip


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A finished run of Sokoban with settings that are nobody's defaults, in `run`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    return finished(tmp_path / "run", *NOT_THE_DEFAULTS, base=SMALL)


def test_a_run_is_evaluated_with_its_settings(trained, capsys):
    status, out, err = run(capsys, "eval", f"run={trained}", "out=result.json")
    assert status == 0, err
    assert "hgpo_gym/Sokoban-v0, split test: success " in out
    result = json.loads((trained.parent / "result.json").read_text())
    assert (result.pop("env"), result.pop("run"), result.pop("changed")) == ("hgpo_gym/Sokoban-v0", str(trained), {})
    assert " -> " not in out
    assert result.pop("policy") == "model"
    assert result.items() <= read_summary(trained)["evaluations"][-1].items()


def test_changes_by_the_command_line_are_named_and_nothing_else_changes(trained, capsys):
    changes = ["memory.window=2", "evaluation.split=train", "env.max_episode_steps=7", "env.milestones=true"]
    status, out, err = run(capsys, "eval", f"run={trained}", *changes, "out=result.json")
    assert status == 0, err
    output = [line for line in out.splitlines() if " -> " in line]
    assert sorted(output) == [
        "env.milestones: false -> true", 'evaluation.split: "test" -> "train"', "memory.window: 4 -> 2",
    ]  # fmt: skip
    result = json.loads((trained.parent / "result.json").read_text())
    assert result["split"] == "train"
    assert result["changed"] == {
        "memory.window": [4, 2], "evaluation.split": ["test", "train"], "env.milestones": [False, True],
    }  # fmt: skip


def test_a_report_keeps_what_others_played_apart_from_the_final_weights(trained, capsys):
    before = load_runs([trained])[0][0].final_parts
    for name, overrides in (("expert", ["policy=expert"]), ("first", ["iteration=0"]), ("again", [])):
        status, _, err = run(capsys, "eval", f"run={trained}", *overrides, f"out={trained}/evaluation_{name}.json")
        assert status == 0, err
    after = load_runs([trained])[0][0].final_parts
    assert {split for split, _ in after} == {"test", "test (policy=expert)", "test (iteration=0)"}
    assert before.items() <= after.items()


def test_a_report_keeps_evaluations_under_other_settings_apart(trained, capsys):
    maze = ["env=signpost_maze"]
    changed = {"same": [], "window": ["memory.window=2"], "maze": maze, "short": [*maze, "env.max_episode_steps=3"]}
    for name, changes in changed.items():
        status, _, err = run(capsys, "eval", f"run={trained}", *changes, f"out={trained / f'evaluation_{name}.json'}")
        assert status == 0, err
    parts = {split for split, _ in load_runs([trained])[0][0].final_parts}
    other = "env.id=hgpo_gym/SignpostMaze-v0"
    assert parts == {"test", "test (memory.window=2)", f"test ({other})", f"test ({other}, env.max_episode_steps=3)"}


def test_another_environment_brings_its_options_and_split_and_leaves_the_rest(trained):
    config, before = load_evaluation([f"run={trained}", "env=signpost_maze", "env.sections=1"]), read_config(trained)
    maze = load_config("config", ["env=signpost_maze", "env.sections=1"])
    assert (config["env"], config["env_name"]) == (maze["env"], "signpost_maze")
    assert {name for name in before if config[name] != before[name]} == {"env", "env_name"}
    webshop = load_evaluation([f"run={trained}", "env=webshop"])
    assert webshop["evaluation"] == {**before["evaluation"], "split": ["validation", "test", "generated_test"]}
    assert webshop["memory"] == before["memory"]


def test_unknown_keys_are_refused_with_the_nearest_of_the_run(trained, capsys):
    """`env.size` is an option of the run's environment, none of the one that is there by default."""
    assert load_evaluation([f"run={trained}", "env.size=7"])["env"]["size"] == 7
    for wrong, nearest in (("env.sise=7", "env.size"), ("memry.window=1", "memory.window"), ("env=sokban", "sokoban")):
        status, _, err = run(capsys, "eval", f"run={trained}", wrong)
        assert status == 2
        assert f"Did you mean '{nearest}'?" in err


def test_a_checkpoint_of_another_kind_is_refused(trained, capsys):
    for requested, output in (
        ("model=tiny", "has model.kind=tabular, not language_model: leave out model=, or set the same one."),
        ("algo=sb3_ppo", "has algo=hgpo, not sb3_ppo: leave out algo=, or set it to that."),
    ):
        status, _, err = run(capsys, "eval", f"run={trained}", requested)
        assert (status, output in err) == (2, True), err


def test_settings_that_only_training_reads_are_named_and_change_nothing(trained, capsys):
    names = ["algo=grpo", "seed=7", "rollout.temperature=0.1", "trainer.learning_rate=1", "memory.window=2"]
    status, out, err = run(capsys, "eval", f"run={trained}", *names, "out=result.json")
    assert status == 0, err
    ignored = "algo, seed (here evaluation.decoding_seeds), rollout.temperature (here evaluation.temperature), trainer."
    assert f"Read by training alone, and without effect here: {ignored}learning_rate." in " ".join(out.split())
    assert json.loads((trained.parent / "result.json").read_text())["changed"] == {"memory.window": [4, 2]}
    # A model that is made anew imitates by the trainer's precision.
    assert (
        "Read by" not in run(capsys, "eval", "policy=random", "env=sokoban", "env.levels=12", "evaluation.tasks=1")[1]
    )
    assert without_effect(["trainer.precision=float32", "seed=1"], load_config("eval", [])).endswith(
        "here: seed (here evaluation.decoding_seeds)."
    )


def test_what_training_alone_reads_does_not_keep_an_evaluation_away(trained, capsys):
    """A sampler that cannot play such groups, a penalty of responses longer than any."""
    for setting in ("sampler=tree sampler.trees=7", "shaping=overlong shaping.buffer=64"):
        status, _, err = run(capsys, "eval", f"run={trained}", *setting.split())
        assert status == 0, err
        status, _, err = run(capsys, "train", "model=tabular", *setting.split())
        assert status == 2
        assert "sampler.trees=7" in err or "shaping.buffer=64" in err


def test_code_that_a_run_names_is_run_only_if_the_command_names_it(trained, capsys):
    config = read_config(trained)
    plugin = trained / "mine.py"
    plugin.write_text(f"from pathlib import Path\nPath({str(trained / 'ran')!r}).touch()\n")
    (trained / "config.yaml").write_text(yaml.safe_dump({**config, "plugins": [str(plugin)]}))
    status, _, err = run(capsys, "eval", f"run={trained}")
    assert status == 2
    assert f"was trained with plugins=[{plugin}], code that is run only if you name it" in err
    assert not (trained / "ran").exists()
    registration = trained.parent / "mine.py"
    registration.write_text("")
    status, out, err = run(capsys, "eval", f"run={trained}", f"plugins=[{registration}]")
    assert status == 0, err
    assert "plugins" not in out
    assert not (trained / "ran").exists()


def test_random_actions_are_measured_under_a_runs_settings_too(trained, capsys):
    status, out, _ = run(capsys, "eval", f"run={trained}", "policy=random")
    assert status == 0
    assert json.loads(out[out.index("{") :])["env"] == "hgpo_gym/Sokoban-v0"
