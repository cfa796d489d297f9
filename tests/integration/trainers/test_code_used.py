"""Code from elsewhere is kept by digests: a changed file is named where runs are resumed, kept or reported."""

import json
import sys
from functools import partial

import pytest

from hgpo_gym.config.compose import load_config
from hgpo_gym.plugins import load_plugins
from hgpo_gym.source_code import place_of, source_of
from hgpo_gym.trainers.run import code_of
from hgpo_gym.trainers.settings import RunSettings
from tests.support import warm
from tests.support.packages import python
from tests.unit.test_registry import ESTIMATOR, TRAINING

pytestmark = pytest.mark.timeout(600)

REGISTERING = "\nfrom hgpo_gym.advantages import register_estimator\nregister_estimator('centred', centred)\n"


def test_a_run_of_what_is_here_alone_names_no_code():
    assert code_of(RunSettings.parse(load_config("config", ["algo=salt", "model=tabular"]))) == {}


def package(folder, name):
    """Two modules, the second in a package of the first."""
    (folder / name / "inner").mkdir(parents=True)
    for place in (folder / name, folder / name / "inner"):
        (place / "__init__.py").write_text("")
    (folder / name / "words.py").write_text("word = 'tea'\n")
    (folder / name / "inner" / "method.py").write_text("def method(batch):\n    return batch.reward\n")


def test_of_a_package_every_file_counts_of_a_file_itself(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "my_package")
    from my_package.inner.method import method  # type: ignore[import-not-found]

    before = source_of(method)
    assert place_of(method) == "my_package.inner"
    assert source_of(partial(method, 1)) == before
    (tmp_path / "beside.py").write_text("")
    assert source_of(method) == before
    (tmp_path / "my_package" / "words.py").write_text("word = 'coffee'\n")
    assert source_of(method) != before

    alone = tmp_path / "alone_in_a_file.py"
    alone.write_text("def method(batch):\n    return 0\n")
    load_plugins([str(alone)])
    method = sys.modules["alone_in_a_file"].method
    before = source_of(method)
    assert place_of(method) == "alone_in_a_file.py"
    (tmp_path / "beside.py").write_text("beside = 1")
    assert source_of(method) == before
    alone.write_text("def method(batch):\n    return 1\n")
    assert source_of(method) != before


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison of a custom method with GRPO, the file, and what compares them again."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "my_methods.py").write_text(ESTIMATOR + REGISTERING)

    def compare(*more):
        command = ["compare", "plugins=[my_methods.py]", "algos=[centred,grpo]", *TRAINING, "jobs=2", "out=out", *more]
        done = python("-m", "hgpo_gym", *command, cwd=folder, interpreter=warm.python())
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "has changed" not in compare()
    return folder, compare


def launches(run):
    return [json.loads(line) for line in (run / "launches.jsonl").read_text().splitlines()]


def test_the_runs_that_use_it_keep_its_digest(compared):
    folder, _ = compared
    assert launches(folder / "out" / "grpo-seed0")[0]["code"] == {}
    place, digest = launches(folder / "out" / "centred-seed0")[0]["code"]["algo"].split()
    assert place == "my_methods.py"
    assert len(digest) == 16


def test_a_changed_file_is_named_in_finished_and_resumed_runs_and_in_the_report(compared):
    folder, compare = compared
    assert "has changed" not in compare()
    assert "not all trained by the same" not in (folder / "out" / "report.md").read_text()
    file = folder / "my_methods.py"
    file.write_text(file.read_text().replace("reward.mean()", "reward.max()"))
    assert "my_methods.py (algo) has changed since out/centred-seed0 was trained or begun." in " ".join(
        compare().split()
    )
    # More iterations go on with what it says now, and the report has both.
    compare("trainer.iterations=2")
    assert (
        "my_methods.py (algo) has changed since this run" in (folder / "out" / "centred-seed0" / "log.txt").read_text()
    )
    report = " ".join((folder / "out" / "report.md").read_text().split())
    assert "The runs of centred were not all trained by the same my_methods.py (algo)" in report
    assert "has changed" not in compare("trainer.iterations=2")
