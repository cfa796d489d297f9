"""Training on the built-in environment: it learns, is deterministic, resumes to the same numbers, stops cleanly."""

import json
import os
import signal
import subprocess
from functools import partial

import numpy as np
import pytest

from hgpo_gym.runs.directory import read_config, read_metrics, read_summary
from tests.support import small_runs, warm
from tests.support.held import held
from tests.support.small_runs import numbers, opened

SMALL = [*small_runs.TINY, "checkpoint.every=1", "trainer.kl_coef=0.01"]


@pytest.fixture(autouse=True, scope="module")
def an_empty_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


train = partial(small_runs.train, base=SMALL)
settings = partial(small_runs.settings, base=SMALL)


@pytest.mark.promise("GRPO, GiGPO and HGPO learn from scratch.")
@pytest.mark.parametrize("algo", ["grpo", "gigpo", "hgpo"])
def test_every_algorithm_learns(algo, tmp_path):
    """Two sections in twelve steps: uniformly random actions win 1 in 16 episodes, learning at least doubles that."""
    summary = train(
        tmp_path, f"algo={algo}", "seed=1", "trainer.iterations=14", "rollout.group_size=8", "rollout.num_tasks=6",
        "env.sections=2", "env.max_episode_steps=12", "trainer.kl_coef=0", "trainer.mini_batch_size=64",
        "evaluation.every=0", "evaluation.decoding_seeds=8", "evaluation.temperature=1.0",
    )  # fmt: skip
    lines = read_metrics(tmp_path)
    early, late = (np.mean([line["success"] for line in part]) for part in (lines[:3], lines[-3:]))
    assert late > 2 * early
    assert late > 0.2
    assert summary["success_after"] > summary["success_before"]
    assert summary["algorithm"] == algo


@pytest.mark.promise("The same seed gives the same numbers.")
@pytest.mark.smoke
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / name, f"seed={seed}", "trainer.iterations=2")
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    assert numbers(tmp_path / "a") != numbers(tmp_path / "c")


@pytest.mark.promise("Ctrl-C saves a checkpoint, and the same command goes on to the same numbers.")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_interrupted_after_3_of_6_iterations_ends_with_the_same_metrics(number, tmp_path):
    """Ctrl-C, or a scheduler's signal, to a real process, then the same command again."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(whole, "trainer.iterations=6")
    with held(3, [broken], "train", *SMALL, f"run_dir={broken}", "trainer.iterations=6") as (process, pid):
        os.kill(pid, number)
        seen, _ = process.communicate()
    assert process.returncode == 130, seen
    assert "resume=auto" in seen
    assert "Traceback" not in seen
    assert len(read_metrics(broken)) == 3
    train(broken, "trainer.iterations=6", "resume=auto")
    assert numbers(broken) == numbers(whole)
    before, after = read_summary(whole), read_summary(broken)
    assert before["success_after"] == after["success_after"]


def test_a_run_directory_is_not_overwritten_and_settings_are_compared(tmp_path):
    train(tmp_path, "trainer.iterations=1")
    with pytest.raises(FileExistsError, match=r"already holds a run\. Go on with it by resume=auto"):
        opened(settings(tmp_path))
    with pytest.raises(ValueError, match=r"trainer.learning_rate: 0.0005 in the run, 0.5 now"):
        opened(settings(tmp_path, "resume=auto", "trainer.learning_rate=0.5"))
    with pytest.raises(FileNotFoundError, match="resume=must"):
        opened(settings(tmp_path / "none", "resume=must"))
    # null is the objective's default, token_mean of ppo_clip.
    opened(settings(tmp_path, "resume=auto", "trainer.loss_aggregation=token_mean"))
    with pytest.raises(ValueError, match=r"trainer.loss_aggregation: 'token_mean' in the run, 'sequence_mean' now"):
        opened(settings(tmp_path, "resume=auto", "trainer.loss_aggregation=sequence_mean"))
    config = tmp_path / "config.yaml"
    # A run of before an option existed had its default.
    config.write_text(config.read_text().replace("  staleness: 0\n", ""))
    opened(settings(tmp_path, "resume=auto"))
    with pytest.raises(ValueError, match=r"rollout.staleness: 0 in the run, 1 now"):
        opened(settings(tmp_path, "resume=auto", "rollout.staleness=1"))
    with pytest.raises(FileExistsError, match=r"is a folder of runs, such as .*run_dir="):
        opened(settings(tmp_path.parent))
    config.write_text(config.read_text().replace("name: ppo_clip", "name: of_a_plugin"))
    with pytest.raises(ValueError, match=r"objective.name: 'of_a_plugin' in the run, 'ppo_clip' now"):
        opened(settings(tmp_path, "resume=auto"))
    assert read_config(tmp_path)["trainer"]["iterations"] == 1
    assert json.loads((tmp_path / "summary.json").read_text())["iterations"] == 1


def test_non_finite_training_keeps_the_last_good_checkpoint(tmp_path):
    process = subprocess.run(
        [*warm.python(), "-m", "hgpo_gym", "train", *SMALL, f"run_dir={tmp_path}", "trainer.iterations=30",
         "trainer.learning_rate=1e30", "trainer.max_grad_norm=1e30"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 1
    assert "hgpo-gym: iteration 1" in process.stderr or "hgpo-gym: iteration 2" in process.stderr
    assert "last good checkpoint" in process.stderr
    assert "Traceback" not in process.stderr
    assert (tmp_path / "checkpoints" / "iteration_0000" / "model" / "config.json").exists()
