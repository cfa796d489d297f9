"""The public surface: lazy, complete, and the same as the command line."""

import subprocess
import sys

import numpy as np
import pytest

import hgpo_gym as hg
from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.runs.directory import read_metrics
from tests.support import ROOT

SMALL = [
    "env.sections=2", "env.max_episode_steps=10", "rollout.num_tasks=2", "rollout.group_size=4",
    "trainer.mini_batch_size=32", "evaluation.decoding_seeds=1",
]  # fmt: skip


def test_every_public_name_exists_and_importing_the_package_loads_no_torch():
    for name in hg.__all__:
        assert getattr(hg, name) is not None, name
    with pytest.raises(AttributeError, match="No hgpo_gym attribute trian"):
        hg.trian  # noqa: B018
    code = "import sys, hgpo_gym; hgpo_gym.TextEnv, hgpo_gym.estimate, hgpo_gym.Memory; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_public_name_is_on_a_page_of_the_api():
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference/api").glob("*.md"))
    assert [name for name in hg.__all__ if f".{name}\n" not in pages] == []


def test_train_again_takes_a_new_folder_and_a_run_is_read_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = []
    first = hg.train(
        model="tabular", algo="hgpo", iterations=2, overrides=SMALL, progress=lambda *done: calls.append(done)
    )
    second = hg.train(model="tabular", algo="hgpo", iterations=2, overrides=SMALL, progress=False)
    assert (first.path.name, second.path.name) == ("signpost_maze-hgpo-seed0", "signpost_maze-hgpo-seed0-2")
    assert [line["success"] for line in first.metrics] == [line["success"] for line in second.metrics]
    assert calls[-1][:2] == (2, 2)
    assert first.metrics == read_metrics(first.path)
    assert first.summary["iterations"] == 2
    assert first.best_checkpoint.parent == first.path / "checkpoints"
    again = hg.load_run(first.path)
    assert again.config["algo"]["name"] == "hgpo"
    longer = hg.train(
        model="tabular", algo="hgpo", iterations=3, overrides=SMALL, run_dir=first.path, resume=True, progress=False
    )
    assert [line["iteration"] for line in longer.metrics] == [1, 2, 3]
    with pytest.raises(FileExistsError, match="already holds a run"):
        hg.train(model="tabular", overrides=SMALL, run_dir=first.path, progress=False)
    with pytest.raises(FileNotFoundError, match="No run in"):
        hg.load_run(tmp_path / "none")
    result = hg.evaluate(longer, iteration="best", progress=False)
    assert result.success == pytest.approx(longer.summary["best"]["success"])
    expert = hg.evaluate(policy="expert", overrides=[*SMALL, "model=tabular"], progress=False)
    assert expert.success == 1


def test_compare_returns_the_runs_and_the_report(tmp_path):
    compared = hg.compare(
        ["grpo", {"name": "gigpo", "gamma": 0.9}],
        seeds=1, model="tabular", out=tmp_path / "both", jobs=1, progress=False,
        overrides=[*SMALL, "trainer.iterations=1"],
    )  # fmt: skip
    assert [run.config["algo"]["name"] for run in compared.runs] == ["gigpo", "grpo"]
    assert compared.report.is_file()


def test_registering_by_decorator(monkeypatch):
    monkeypatch.setattr(ESTIMATORS, "_all", dict(ESTIMATORS._all))  # tests of every estimator may come later

    @hg.register_estimator
    def last_reward_only(batch):
        return batch.reward

    @hg.register_estimator("constant_of_one")
    def one(batch):
        return np.ones(len(batch))

    @hg.register("api/Echo-v0", max_episode_steps=3, description="Say it.")
    class Echo(hg.TextEnv):
        task_ids = ("cat",)

        def begin_episode(self, task_id):
            return hg.Turn("Say it.", task="Say it.", admissible_actions=("cat",))

        def take_action(self, action):
            return hg.Turn("Done.", reward=1.0, terminated=True, won=True)

    assert ESTIMATORS["last_reward_only"] is last_reward_only
    assert ESTIMATORS["constant_of_one"] is one
    assert hg.make("api/Echo-v0").reset(seed=0)[0] == "Say it."
    assert hg.make_vec("api/Echo-v0", num_tasks=1, group_size=2).num_envs == 2
    with pytest.raises(ValueError, match="'grpo' is taken"):
        hg.register_estimator("grpo")(one)
