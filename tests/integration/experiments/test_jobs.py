"""Runs as jobs of submitit, by its executor of local processes: the same numbers, failures by name, resubmission."""

import re
import shlex
import sys

import pytest
from submitit.local.local import LocalExecutor

from hgpo_gym.cli.main import main
from hgpo_gym.config.compose import load_run
from hgpo_gym.experiments.jobs import train_all_as_jobs
from hgpo_gym.experiments.slurm_jobs import RequeuedJob, SlurmSettings, slurm_jobs
from hgpo_gym.extras import install_command
from tests.support import warm
from tests.support.endings import end_as_asked
from tests.support.small_runs import numbers

pytestmark = pytest.mark.timeout(600)

SMALL = [
    "model=tabular", "env.sections=1", "env.max_episode_steps=8", "trainer.iterations=2",
    "rollout.num_tasks=2", "evaluation.every=0", "evaluation.decoding_seeds=1",
]  # fmt: skip
RAY = ["launcher=ray"]
LOCAL = ["launcher=submitit", "launcher.cluster=local", "launcher.parameters={mem_gb: 1}"]


@pytest.fixture
def forked_jobs(monkeypatch):
    """Jobs are forks of a process that has imported what training needs; their controllers are new interpreters."""

    def command(executor):
        return shlex.join([*warm.python(), "-u", "-m", "submitit.core._submit", str(executor.folder)])

    monkeypatch.setattr(LocalExecutor, "_submitit_command_str", property(command))


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize("launcher", ["submitit", "ray"])
def test_jobs_give_the_numbers_that_processes_give_and_a_report(launcher, tmp_path, capfd):
    pytest.importorskip(launcher)
    words = LOCAL if launcher == "submitit" else [*RAY, "launcher.address=local"]
    for name, launched in (("jobs", words), ("processes", [])):
        main(["compare", *SMALL, *launched, "algos=[grpo,hgpo]", "jobs=2", f"out={tmp_path / name}"])
    captured = capfd.readouterr()
    assert launcher not in (captured.out + captured.err).replace(str(tmp_path), "").lower()
    for algorithm in ("grpo", "hgpo"):
        ours, theirs = (numbers(tmp_path / name / f"{algorithm}-seed0") for name in ("jobs", "processes"))
        assert ours == theirs
    log = (tmp_path / "jobs" / "hgpo-seed0" / "log.txt").read_text()
    assert "Success" in log
    assert "job_id" not in log
    assert (tmp_path / "jobs" / "report.md").exists()


NAMES = ("fine", "gone", "raised", "refused")


@pytest.mark.usefixtures("forked_jobs")
def test_jobs_that_fail_are_named_and_the_others_go_on(tmp_path):
    some = load_run(SMALL)
    runs = {tmp_path / name: some.changed(run_dir=str(tmp_path / name)).resolved for name in NAMES}
    watched = []
    with slurm_jobs(SlurmSettings(cluster="local", parameters={}), folder=tmp_path / "jobs") as submit:
        ended = train_all_as_jobs(runs, end_as_asked, watched.append, submit=submit, jobs=3)
    failed = {run.name: how for run, how in ended.items()}
    assert set(failed) == {"gone", "raised", "refused"}
    assert failed["refused"] == "it ended with status 2"
    assert all(re.fullmatch(r"its job \d+ failed", failed[name]) for name in ("gone", "raised"))
    assert (tmp_path / "raised" / "log.txt").read_text().endswith("RuntimeError: the sky fell\n")
    assert max(map(len, watched)) == 3
    assert (tmp_path / "fine" / "log.txt").read_text().startswith("This is fine in process ")


def test_a_job_that_slurm_stops_is_queued_again_as_it_was(tmp_path):
    settings = load_run(SMALL).changed(run_dir=str(tmp_path)).resolved
    job = RequeuedJob(end_as_asked)
    again = job.checkpoint(settings)
    assert (again.function, again.args) == (job, (settings,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["launcher.cluster=moon"], "launcher.cluster=moon"),
        (["launcher.cluster=local", "launcher.parameters.minutes=4"], "minutes"),
        (["launcher.cluster=local", "jobs=-1"], "jobs=-1: must be 0 or more"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(options, message, capsys, tmp_path):
    words = ["launcher=submitit", *options[:1], *(f"+{one}" if "minutes" in one else one for one in options[1:])]
    with pytest.raises(SystemExit) as ended:
        main(["compare", *SMALL, *words, "algos=[grpo]", f"out={tmp_path}"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["jobs=1", "jobs=0"])
@pytest.mark.parametrize("launcher", ["processes", "submitit"])
def test_settings_of_another_launcher_are_refused(launcher, jobs, capsys, tmp_path):
    words = [f"launcher={launcher}", "+launcher.num_gpus=1", "algos=[grpo]", jobs, f"out={tmp_path}"]
    with pytest.raises(SystemExit) as ended:
        main(["compare", *SMALL, *words])
    assert ended.value.code == 2
    assert "launcher.num_gpus" in capsys.readouterr().err
    assert not list(tmp_path.glob("*/log.txt"))


@pytest.mark.parametrize(("package", "launcher"), [("submitit", LOCAL), ("ray", RAY)])
def test_what_is_missing_is_named(package, launcher, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit):
        main(["compare", *SMALL, *launcher, "algos=[grpo]", f"out={tmp_path}"])
    assert install_command(package) in capsys.readouterr().err
