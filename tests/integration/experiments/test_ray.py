"""Runs as tasks of Ray, of real clusters on this machine: the same numbers, failures by name, what is lost goes on."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from hgpo_gym.cli.main import main
from hgpo_gym.cli.one_run import train_one_of_many
from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.experiments.jobs import train_all_as_jobs
from hgpo_gym.experiments.ray_tasks import RaySettings, _train_on_worker, ray_tasks
from hgpo_gym.runs.directory import read_metrics
from tests.integration.experiments.test_jobs import SMALL
from tests.support.endings import LOST, end_as_asked

pytestmark = pytest.mark.timeout(600)

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    """One that was there before, with 2 CPUs."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield started
    started.shutdown()


def launcher(cluster, *overrides):
    """The settings of launcher=ray, without its name."""
    words = ["launcher=ray", f"launcher.address='{cluster.address}'", *overrides]
    composed = load_config("compare", words)["launcher"]
    return RaySettings.model_validate({key: value for key, value in composed.items() if key != "name"})


NAMES = ("fine", "gone", LOST, "raised", "refused")


def test_tasks_that_fail_are_named_and_the_others_go_on(cluster, tmp_path):
    some = load_run(SMALL)
    runs = {tmp_path / name: some.changed(run_dir=str(tmp_path / name)).resolved for name in NAMES}
    watched = []
    with ray_tasks(launcher(cluster, "launcher.max_retries=1", "launcher.num_cpus=0.5")) as submit:
        ended = train_all_as_jobs(runs, end_as_asked, watched.append, submit=submit, jobs=2)
    assert cluster.remaining_processes_alive()
    assert {run.name: how for run, how in ended.items()} == {
        "gone": "its task failed: The worker died unexpectedly while executing this task. Check "
        "python-core-worker-*.log files for more information.",
        "raised": "it failed",
        "refused": "it ended with status 2",
    }
    assert max(map(len, watched)) == 2
    logs = {name: (tmp_path / name / "log.txt").read_text() for name in NAMES}
    assert logs["raised"].endswith("RuntimeError: the sky fell\n")
    begun = {name: log.count(f"This is {name} in process ") for name, log in logs.items()}
    assert begun == {"fine": 1, "gone": 2, "lost": 2, "raised": 1, "refused": 1}


def test_a_log_that_cannot_be_written_is_what_failed(tmp_path):
    (tmp_path / "file").touch()
    run = load_run([*SMALL, f"run_dir={tmp_path / 'file' / 'run'}"]).resolved
    assert re.fullmatch(r"it failed: .*Not a directory.*", _train_on_worker(end_as_asked, run, Path.cwd(), {}))


def test_what_is_stopped_saves_a_checkpoint(cluster, tmp_path):
    run = load_run(
        [*SMALL, "trainer.iterations=100000", "checkpoint.every=100000", f"run_dir={tmp_path / 'run'}"]
    ).resolved

    def stop_soon(running):
        if len(read_metrics(tmp_path / "run")) > 1:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), ray_tasks(launcher(cluster)) as submit:
        train_all_as_jobs({tmp_path / "run": run}, train_one_of_many, stop_soon, submit=submit, jobs=1)
    last = read_metrics(tmp_path / "run")[-1]["iteration"]
    assert f"interrupted after iteration {last}" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["launcher.num_gpus=64"], "{CPU: 1, GPU: 64} for each run, and no machine of the cluster has as much"),
        (["launcher.resources={telescope: 1}"], "telescope: 0}. Ask for less"),
        (["launcher.resources={CPU: 1}"], "num_cpus"),
        (["launcher.address='127.0.0.1:9'"], "launcher.address=127.0.0.1:9: no Ray cluster can be reached there"),
        (["launcher.max_retries=-1"], "launcher.max_retries=-1: must be at least 0"),
        (["+launcher.cpus=4"], "launcher.cpus"),
        (["jobs=-1"], "jobs=-1: must be 0 or more"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(options, message, cluster, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    with pytest.raises(SystemExit) as ended:
        main(["compare", *SMALL, "launcher=ray", *options, "algos=[grpo]", f"out={tmp_path}"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*/log.txt"))
