"""Comparisons: only the algorithm may differ, a crash or a kill costs no result, and intervals are what they say."""

import fcntl
import multiprocessing
import os
import pkgutil
import shlex
import signal
import subprocess

import numpy as np
import pytest

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.cli.main import main
from hgpo_gym.config import choices
from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.experiments import pool
from hgpo_gym.experiments.plan import NotComparableError, check_comparable, seed_list, variants
from hgpo_gym.experiments.pool import train_all
from hgpo_gym.runs.directory import read_config, read_metrics, read_summary
from tests.support import warm
from tests.support.commands import run as run_command
from tests.support.endings import WAYS, end_as_asked
from tests.support.held import held
from tests.support.small_runs import MACHINE, finished

SMALL = [
    "model=tabular", "env.sections=2", "env.max_episode_steps=12", "rollout.num_tasks=2",
    "evaluation.decoding_seeds=1", "jobs=2",
]  # fmt: skip


def test_runs_that_differ_in_the_algorithm_and_the_seed_are_comparable():
    check_comparable(
        {
            "grpo": load_config("config", ["algo=grpo", "seed=1"]),
            "hgpo": load_config("config", ["algo=hgpo", "algo.weights=released", "seed=2", "run_dir=elsewhere"]),
            "resumed": load_config("config", ["resume=auto", "checkpoint.every=7", "evaluation.num_envs=3"]),
        }
    )


@pytest.mark.promise("A comparison refuses runs that differ in more than the algorithm.")
def test_runs_that_differ_in_a_learning_rate_are_refused_by_name():
    configs = {f"grpo-seed{seed}": load_config("config", ["algo=grpo", f"seed={seed}"]) for seed in range(5)}
    configs["hgpo-seed0"] = load_config("config", ["algo=hgpo", "trainer.learning_rate=0.5", "rollout.num_tasks=4"])
    with pytest.raises(NotComparableError) as refused:
        check_comparable(configs)
    assert str(refused.value).splitlines() == [
        "These runs differ in more than the algorithm and the seed:",
        "  rollout.num_tasks: 8 in grpo-seed0, grpo-seed1, grpo-seed2 and 2 more; 4 in hgpo-seed0",
        "  trainer.learning_rate: 0.0005 in grpo-seed0, grpo-seed1, grpo-seed2 and 2 more; 0.5 in hgpo-seed0",
    ]
    with pytest.raises(NotComparableError, match=r"model\.level: not set in tiny; None in table"):
        check_comparable({"tiny": load_config("config", []), "table": load_config("config", ["model=tabular"])})


def compare(capsys, *overrides):
    """Exit status, standard output and standard error of `hgpo-gym compare`."""
    return run_command(capsys, "compare", *SMALL, *overrides)


def test_an_algorithm_that_changes_other_settings_is_refused(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "configs"
    subprocess.run(["cp", "-r", choices.FOLDER, folder], check=True)
    (folder / "algo" / "sly.yaml").write_text("# @package _global_\nalgo: {name: hgpo}\nrollout: {group_size: 16}\n")
    monkeypatch.setattr(choices, "FOLDER", folder)
    status, _, err = compare(capsys, "algos=[grpo,sly]", "seeds=2", f"out={tmp_path / 'out'}")
    assert status == 2
    assert "rollout.group_size: 8 in what is asked for, grpo-seed0, grpo-seed1; 16 in sly-seed0, sly-seed1" in err
    assert not (tmp_path / "out").exists()


def test_existing_runs_are_kept_continued_or_refused(capsys, tmp_path):
    options = ["algos=[grpo,hgpo]", f"out={tmp_path}"]
    status, out, _ = compare(capsys, *options, "seeds=[0,3]", "trainer.iterations=2")
    assert status == 0
    assert {path.parent.name for path in tmp_path.glob("*/summary.json")} == {
        f"{algo}-seed{seed}" for algo in ("grpo", "hgpo") for seed in (0, 3)
    }
    assert "hgpo and grpo: final" in out
    before = snapshot(tmp_path)
    assert compare(capsys, *options, "seeds=[0,3]", "trainer.iterations=2")[0] == 0
    assert snapshot(tmp_path) == before
    status, _, err = compare(capsys, *options, "seeds=[0,3]", "trainer.learning_rate=0.5", "trainer.iterations=2")
    assert status == 2
    assert "trainer.learning_rate: 0.1 in the run, 0.5 now" in err
    status, _, err = compare(capsys, *options, "seeds=4", "trainer.iterations=1")
    assert status == 2
    assert f"The run in {tmp_path}/grpo-seed0 has 2 iterations already, more than trainer.iterations=1." in err
    assert snapshot(tmp_path) == before
    assert not (tmp_path / "grpo-seed1").exists()
    assert compare(capsys, *options, "seeds=[0,3]", "trainer.iterations=3")[0] == 0
    assert [len(read_metrics(tmp_path / f"{algo}-seed3")) for algo in ("grpo", "hgpo")] == [3, 3]
    header, *lines = (tmp_path / "tables" / "runs.csv").read_text().splitlines()
    assert header.startswith("algorithm,seed,iterations,before,final,")
    assert [line.split(",")[:3] for line in lines] == [
        ["grpo", "0", "3"], ["grpo", "3", "3"], ["hgpo", "0", "3"], ["hgpo", "3", "3"]
    ]  # fmt: skip


@pytest.mark.timeout(600)
def test_commands_for_a_scheduler_give_the_runs_that_the_comparison_then_finds(capsys, tmp_path, monkeypatch):
    """As the README has it: the lines that jobs=0 prints, by xargs and a shell, here into a folder with a blank."""
    requested = [
        "algos=[grpo,hgpo]", "seeds=[0,3]", "trainer.iterations=2", "rollout.num_tasks=2", f"out={tmp_path}/a b",
    ]  # fmt: skip
    status, printed, _ = compare(capsys, *requested, "jobs=0")
    assert status == 0
    lines = printed.splitlines()
    assert len(lines) == 4
    assert not (tmp_path / "a b").exists()
    command = tmp_path / "bin" / "hgpo-gym"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(warm.python())} -m hgpo_gym "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    subprocess.run(["xargs", "-d", "\\n", "-n", "1", "sh", "-c"], input="\n".join(lines[:2]), text=True, check=True)
    assert {path.parent.name for path in tmp_path.glob("a b/*/summary.json")} == {"grpo-seed0", "grpo-seed3"}
    before = snapshot(tmp_path / "a b")
    assert compare(capsys, *requested, "jobs=0")[1].splitlines() == lines[2:]
    status, out, _ = compare(capsys, *requested)
    assert status == 0
    assert "hgpo and grpo: final" in out
    assert before.items() < snapshot(tmp_path / "a b").items()


def test_options_that_are_mappings_are_compared_and_name_the_folders(tmp_path, capsys):
    algos = "algos=[{name: salt, base: gigpo, base_options: {gamma: 0.5, norm: mean_norm}}]"
    status, out, err = compare(capsys, algos, "seeds=1", "jobs=0", f"out={tmp_path}")
    assert status == 0, err
    overrides = shlex.split(out)[2:]
    assert load_config("config", overrides)["algo"]["base_options"] == {"gamma": 0.5, "norm": "mean_norm"}
    assert "salt-base_gigpo-base_options_gamma_0.5-norm_mean_norm-seed0" in out


def snapshot(out):
    """When the metrics and summaries of all runs were last changed."""
    return {
        path: path.stat().st_mtime_ns for name in ("metrics.jsonl", "summary.json") for path in out.glob(f"*/{name}")
    }


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seeds=[0,0]"], "seeds=[0, 0]: give different whole numbers"),
        (["seeds=1.5"], "seeds=1.5: give different whole numbers, seeds=[0,1,2], or how many: seeds=3."),
        (["jobs=two"], "jobs=two: must be 0 or more, a whole number, or null for as many as fit."),
        (
            ["distributed=ddp"],
            "distributed=ddp: a comparison trains every run in one process. Set distributed=none, or jobs=0",
        ),
        (["seed=3"], "seed=... is set for every run: choose by algos=, seeds= and out=."),
        (["trainer.iterations=0"], "trainer.iterations=0: a comparison needs at least 1."),
        (["algos=[hgpo,{name:hgpo}]"], "algos=['hgpo', 'hgpo']: give at least one, and each of them once."),
        (["algos=grpa"], "Unknown algo 'grpa'. Did you mean 'grpo'?"),
        (["algos=[{alpha:2}]"], "algos: {'alpha': 2} names no algorithm."),
        (["algos=[{name:hgpo,histry_length:1}]"], "Did you mean 'algo.history_length'?"),
        (["algos={name: hgpo}"], "algos={'name': 'hgpo'}: expected a list, algos=[...]."),
        (["algos=[{name:[hgpo,grpo]}]"], "algos: name=['hgpo', 'grpo']: expected one name."),
        (["launcher.name=slurm"], "Unknown launcher 'slurm'. Valid: processes, submitit, ray."),
        ([f"algos=[{{name:salt,base_options:{{{'a' * 250}: 1}}}}]"], "bytes, and names the folders of runs"),
        (["algos=[{name:salt,base:gigpo,base_options:{nrom: 1}}]"], "Unknown option of gigpo 'nrom'."),
    ],
)
def test_mistakes_are_named_with_a_remedy(overrides, message, capsys, tmp_path):
    status, _, err = compare(capsys, *overrides, f"out={tmp_path / 'out'}")
    assert status == 2
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["file/below", "file"])
@pytest.mark.parametrize(("command", "overrides"), [("compare", ["warmstart.source=expert"]), ("league", [])])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_starts(
    command, overrides, out, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "file").touch()
    status, _, err = run_command(
        capsys, command, *overrides, "algos=grpo", "seeds=1", "jobs=1", f"out={tmp_path / out}"
    )
    assert status == 2
    assert f"{tmp_path / 'file'} is not a folder. Choose another folder by out=..." in err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("jobs", [0, 1])
def test_settings_of_the_last_algorithm_are_checked_before_the_first_begins(jobs, tmp_path, capsys):
    """Both algorithms have the same learner, and the second is checked too."""
    algos = "algos=[grpo,{name: gigpo, sampler: {name: tree, trees: 7}}]"
    status, out, err = compare(capsys, algos, f"jobs={jobs}", f"out={tmp_path / 'out'}")
    assert status == 2
    assert "sampler.trees=7" in err
    assert "hgpo-gym train" not in out
    assert not (tmp_path / "out").exists()


def test_commands_alone_imitate_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    main(["compare", "warmstart.source=expert", "seeds=1", "algos=grpo", "jobs=0", f"out={tmp_path / 'out'}"])
    assert capsys.readouterr().out.startswith("hgpo-gym train warmstart.source=expert algo=grpo seed=0 ")
    assert not (tmp_path / "cache").exists()


def test_an_algorithm_can_compete_with_itself(capsys, tmp_path):
    hgpo = "{name:hgpo,history_length:0},{name:hgpo,history_length:1,base_group:true}"
    gigpo = "gigpo,{name:gigpo,memory:full},{name:gigpo,memory:{name:window,window:0}}"
    status, out, err = compare(capsys, f"algos=[{gigpo},{hgpo}]", "trainer.iterations=1", f"out={tmp_path}")
    assert status == 0, err
    runs = {
        path.parent.name.removesuffix("-seed0"): read_config(path.parent) for path in tmp_path.glob("*/config.yaml")
    }
    memories = {"gigpo", "gigpo-memory_full", "gigpo-memory_window-window_0"}
    assert set(runs) == {*memories, "hgpo-history_length_0", "hgpo-history_length_1-base_group_True"}
    assert runs["hgpo-history_length_0"]["algo"]["history_length"] == 0
    assert runs["gigpo-memory_window-window_0"]["memory"]["window"] == 0
    for label in ("hgpo K=0 base_group=False", "gigpo memory=full", "gigpo window:window=0"):
        assert label in out


def test_an_option_at_its_default_makes_no_other_algorithm(capsys, tmp_path):
    for algos, names in (
        ("[gigpo,{name: gigpo, gamma: 0.95}]", "gigpo-seed0 and gigpo-gamma_0.95-seed0"),
        ("[{name: gigpo, gamma: 1},{name: gigpo, gamma: 1.0}]", "gigpo-gamma_1-seed0 and gigpo-gamma_1.0-seed0"),
    ):
        assert f"{names} would be the same run" in compare(capsys, f"algos={algos}", f"out={tmp_path / 'out'}")[2]
    assert not (tmp_path / "out").exists()


def test_a_number_of_seeds_means_the_first_ones_and_an_algorithm_alone_needs_no_list():
    assert variants("grpo") == variants(["grpo"])
    assert seed_list(4) == [0, 1, 2, 3]
    assert seed_list([7, 2]) == [7, 2]


LONGER = ["algos=[grpo,hgpo]", "seeds=2", "trainer.iterations=12", "checkpoint.every=4"]


def compare_until_held(after, out):
    """`hgpo-gym compare` in a new process group, whose first two runs wait after so many iterations."""
    return held(after, [out / "grpo-seed0", out / "grpo-seed1"], "compare", *SMALL, *LONGER, f"out={out}")


def results(out):
    """Metrics and summary of every run, without seconds."""
    return {
        run.name: (
            [
                {name: value for name, value in line.items() if not name.startswith(MACHINE)}
                for line in read_metrics(run)
            ],
            {
                name: [{key: part for key, part in evaluation.items() if key != "seconds"} for evaluation in value]
                if name == "evaluations"
                else value
                for name, value in read_summary(run).items()
                if name != "seconds"
            },
        )
        for run in sorted(out.glob("*-seed*"))
    }


@pytest.mark.timeout(600)
def test_a_comparison_killed_twice_ends_with_the_results_of_an_undisturbed_one(capsys, tmp_path):
    """Kills at every moment of saving are in test_checkpoints.py; these come between checkpoints."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert compare(capsys, *LONGER, f"out={whole}", "jobs=1")[0] == 0
    for after in (3, 10):
        with compare_until_held(after, killed):
            pass  # its end is a kill of all its processes
        for mark in killed.glob("*/held"):
            mark.unlink()
    status, output, _ = compare(capsys, *LONGER, f"out={killed}")
    assert status == 0, output
    assert len(results(whole)) == 4
    assert all(len(metrics) == 12 for metrics, _ in results(whole).values())
    assert results(killed) == results(whole)
    assert not list(killed.glob("*/checkpoints/.iteration_*"))


@pytest.mark.timeout(600)
def test_ctrl_c_saves_checkpoints_and_the_same_command_goes_on(capsys, tmp_path):
    with compare_until_held(3, tmp_path) as (process, pid):
        os.kill(pid, signal.SIGINT)  # to the parent alone, as a scheduler would
        output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "The same command continues where it stopped." in output
    before = {run: read_metrics(run) for run in tmp_path.glob("*-seed*") if read_metrics(run)}
    assert sorted(run.name for run in before) == ["grpo-seed0", "grpo-seed1"]
    for run, lines in before.items():
        assert len(lines) == 3
        assert (run / "checkpoints" / "iteration_0003").exists()
    assert compare(capsys, *LONGER, f"out={tmp_path}")[0] == 0
    for run, lines in before.items():
        assert read_metrics(run)[: len(lines)] == lines  # seconds included: nothing was done twice


def test_a_run_that_another_process_holds_fails_alone_and_is_tried_again(capsys, tmp_path):
    held = tmp_path / "grpo-seed1"
    held.mkdir()
    options = ["algos=[grpo,hgpo]", "seeds=2", "trainer.iterations=2", f"out={tmp_path}"]
    with (held / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, err = compare(capsys, *options)
    assert status == 1
    assert "1 of 4 runs failed" in err
    assert f"{held}: it ended with status 2: hgpo-gym: Another process is training in {held}" in err
    assert str(held / "log.txt") in err
    assert sorted(path.parent.name for path in tmp_path.glob("*/summary.json")) == [
        "grpo-seed0", "hgpo-seed0", "hgpo-seed1"
    ]  # fmt: skip
    before = snapshot(tmp_path)
    assert compare(capsys, *options)[0] == 0
    assert snapshot(tmp_path).items() > before.items()


def test_runs_that_crash_are_named_and_the_others_go_on_in_few_processes(tmp_path):
    fine = load_run(SMALL[:-1])
    runs = {tmp_path / name: fine.changed(run_dir=str(tmp_path / name)).resolved for name in WAYS}
    seen = []
    failed = train_all(runs, 1, end_as_asked, seen.extend)
    assert {run.name: how for run, how in failed.items()} == {
        "gone": "its process ended with exit code 7",
        "raised": "its process ended with exit code 1",
        "refused": "it ended with status 2",
    }
    logs = {name: (tmp_path / name / "log.txt").read_text() for name in WAYS}
    assert all(logs[name].startswith(f"This is {name} in process ") for name in WAYS)
    assert "RuntimeError: the sky fell" in logs["raised"]
    processes = {log.splitlines()[0].split()[-1] for log in logs.values()}
    assert len(processes) == 3
    assert list(dict.fromkeys(seen)) == list(runs)


INTERRUPTED = """
import os, signal
if os.getpid() != {parent}:
    os.kill(os.getpid(), signal.SIGINT)
    print("imported in a worker")
def train(settings):
    print("trained")
"""


def test_ctrl_c_while_a_worker_imports_ends_it_without_a_traceback(tmp_path, monkeypatch, capfd):
    (tmp_path / "interrupted_import.py").write_text(INTERRUPTED.format(parent=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pool, "multiprocessing", multiprocessing)  # a new interpreter, not a fork: see conftest.py
    train_in_worker = pkgutil.resolve_name("interrupted_import:train")
    runs = {tmp_path / "run": load_run(SMALL[:-1]).resolved}
    assert train_all(runs, 1, train_in_worker, lambda _: None) == {
        tmp_path / "run": "its process ended with exit code 0"
    }
    captured = capfd.readouterr()
    assert captured.out == "imported in a worker\n"
    assert captured.err == ""


def test_group_sizes_are_counted_by_level():
    """Two groups; at level 0 the hall has 5 steps in the first and 1 in the second, at level 1 pairs differ."""
    batch = StepBatch.from_records(
        group=["a"] * 6 + ["b"] * 2,
        trajectory=[1, 1, 2, 2, 3, 3, 4, 4],
        step=[0, 1] * 4,
        observation=["hall", "hall", "hall", "hall", "garden", "hall", "garden", "hall"],
        reward=[0.0] * 8,
        history_length=2,
    )
    assert batch.group_sizes() == [[3, 0, 0, 5, 0], [2, 2, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_metrics_and_summary_hold_what_a_report_needs(tmp_path):
    finished(tmp_path)
    first, second, *others = read_metrics(tmp_path)
    assert first["steps_so_far"] == first["steps"]
    assert second["steps_so_far"] == first["steps"] + second["steps"]
    assert second["seconds_so_far"] == pytest.approx(
        sum(line[f"seconds_{part}"] for line in (first, second) for part in ("rollout", "advantage", "update"))
    )
    assert len(first["group_sizes"]) == 3
    assert sum(first["group_sizes"][0]) == first["steps"] > sum(first["group_sizes"][1]) > sum(first["group_sizes"][2])
    summary = read_summary(tmp_path)
    assert summary["success_while_training"] == np.mean([line["success"] for line in (first, second, *others)])
    assert summary["evaluations"][0].keys() >= {"success_by_task_type", "success_by_decoding_seed"}
