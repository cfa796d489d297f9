"""Registries and plugins: choices by name, of this package, of installed ones, and of files named in a command."""

import sys
from functools import partial

import pytest

from hgpo_gym.plugins import BrokenPluginWarning, load_plugins, loaded_plugins
from hgpo_gym.registry import Choice, Registry
from tests.support import warm
from tests.support.packages import install_by_hand, python


def halve(number, *, scale=0.5, offset=0):
    return number * scale + offset


def add(number, *, other):
    return number + other


def anything(number, **options):
    return number, options


@pytest.fixture
def registry():
    """Functions of a number; `later` is imported when it is first asked for."""
    entries = {"halve": halve, "add": add, "anything": anything, "later": "fractions:Fraction", "lost": "no_such:thing"}
    return Registry("function", entries, arguments=1, entry_points="hgpo_gym_tests.functions")


def test_a_choice_is_bound_with_its_options(registry):
    assert registry.bind(Choice("halve", {"offset": 3}))(10) == 8.0
    assert registry.bind(Choice("halve"))(10) == 5.0
    assert registry.bind(Choice("anything", {"whatever": 1}))(10) == (10, {"whatever": 1})
    assert list(registry.options("halve")) == ["scale", "offset"]
    assert registry.options("halve")["scale"].default == 0.5


def test_a_choice_of_this_package_is_imported_when_it_is_asked_for(registry):
    from fractions import Fraction

    assert "later" in registry
    assert registry["later"] is registry.find("later") is Fraction
    assert "lost" in registry
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        registry.find("lost")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            Choice("halv"),
            r"Unknown function 'halv'\. Did you mean 'halve'\? Valid: halve, add, anything, later, lost\.",
        ),
        (Choice("halve", {"ofset": 1}), r"Unknown option of halve 'ofset'\. Did you mean 'offset'\?"),
        (Choice("halve", {"number": 1}), r"Unknown option of halve 'number'\. Valid: scale, offset\."),
        (Choice("add"), r"function add needs the option other, which has no default\."),
    ],
)
def test_a_choice_that_cannot_be_is_explained(choice, message, registry):
    with pytest.raises(ValueError, match=message):
        registry.bind(choice)


def test_a_name_cannot_be_registered_twice_by_anyone(registry):
    registry.register("mine", halve)
    assert registry.bind(Choice("mine"))(4) == 2.0
    for name, origin in (("mine", __name__), ("add", __name__), ("later", "fractions")):
        with pytest.raises(ValueError, match=rf"The function name '{name}' is taken by {origin}: choose another\."):
            registry.register(name, add)
    assert registry["add"] is add


def test_what_is_defined_again_at_its_place_replaces_what_was(registry):
    """A notebook's cell that is run a second time, after an edit."""

    def cell(factor):
        def scaled(number, *, factor=factor):
            return number * factor

        for name, entry in (("mine", scaled), ("partly", partial(scaled, factor=factor + 1))):
            registry.register(name, entry)
        with pytest.raises(ValueError, match="The function name 'halve' is taken"):
            registry.register("halve", halve)  # names of this package stay

    for factor in (2, 3):
        cell(factor)
        assert registry.bind(Choice("mine"))(10) == 10 * factor
        assert registry["partly"](10) == 10 * (factor + 1)
    with pytest.raises(ValueError, match=f"The function name 'mine' is taken by {__name__}: choose another"):
        registry.register("mine", add)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that are installed in this process."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_installed_packages_bring_choices_and_take_no_names(site, registry, monkeypatch):
    double = "def double(number, *, times=1):\n    return number * 2**times\n"
    install_by_hand(site, "their_double", double, functions="double = their_double:double\nadd = their_double:double")
    [entry_points] = site.glob("*/entry_points.txt")
    entry_points.write_text(entry_points.read_text().replace("hgpo_gym.functions", "hgpo_gym_tests.functions"))
    with pytest.warns(BrokenPluginWarning) as caught:
        names = list(registry)
    monkeypatch.delitem(sys.modules, "their_double", raising=False)
    assert [str(warning.message) for warning in caught] == [
        f"The function 'add' of their_double 2.0 is left out: the name is taken by {__name__}."
    ]
    assert names == ["halve", "add", "anything", "later", "lost", "double"]
    assert "their_double" not in sys.modules  # until it is asked for
    assert registry.bind(Choice("double", {"times": 3}))(1) == 8
    assert registry["add"] is add
    with pytest.raises(ValueError, match=r"The function name 'double' is taken by their_double: choose another"):
        registry.register("double", add)


ESTIMATOR = """
import numpy as np

def centred(batch, *, weight=1.5):
    \"\"\"The reward less its mean.\"\"\"
    return weight * (batch.reward - batch.reward.mean())
"""
TRAINING = [
    "model=tabular", "env.max_episode_steps=6", "rollout.num_tasks=2", "rollout.group_size=2",
    "trainer.iterations=1", "evaluation.decoding_seeds=1",
]  # fmt: skip


@pytest.mark.slow
def test_an_estimator_of_an_installed_package_trains(tmp_path):
    install_by_hand(tmp_path, "their_methods", ESTIMATOR, estimators="centred = their_methods:centred")
    command = ["-m", "hgpo_gym", "train", "algo=centred", "algo.weight=2", *TRAINING]
    trained = python(*command, path=[tmp_path], cwd=tmp_path, interpreter=warm.python())
    assert trained.returncode == 0, trained.stderr
    run_dir = tmp_path / "runs" / "signpost_maze-centred-seed0"
    assert "weight: 2\n" in (run_dir / "config.yaml").read_text()
    assert {path.name for path in run_dir.iterdir()} >= {"metrics.jsonl", "summary.json", "report.html", "checkpoints"}
    refused = python(*command, "algo.wieght=2", path=[tmp_path], cwd=tmp_path, interpreter=warm.python())
    assert refused.returncode == 2
    assert "Unknown config key 'algo.wieght'. Did you mean 'algo.weight'?" in refused.stderr


def test_a_file_and_a_module_are_imported_once_and_known_to_be(site, monkeypatch):
    (site / "counting_a.py").write_text("import sys\nsys.counted = getattr(sys, 'counted', 0) + 1\n")
    (site / "counting_b.py").write_text("import sys\nsys.counted = getattr(sys, 'counted', 0) + 10\n")
    monkeypatch.setattr(sys, "counted", 0, raising=False)
    for _ in range(2):
        load_plugins([str(site / "counting_a.py"), str(site / "counting_a"), "counting_b"])
    assert sys.counted == 11
    assert loaded_plugins()[-2:] == (str(site / "counting_a.py"), "counting_b")
    for name in ("counting_a", "counting_b"):
        del sys.modules[name]
    assert "counting_b" not in loaded_plugins()


def test_a_plugin_in_the_home_of_nobody_is_named():
    with pytest.raises(ImportError, match=r"importing ~nobody\.at\.all/x failed with RuntimeError"):
        load_plugins(["~nobody.at.all/x"])


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (
            "nowhere.py",
            None,
            r"plugins: there is neither a file .*nowhere\.py nor a module .*Name a Python file by its",
        ),
        ("bad.py", "1 / 0", r"plugins: importing .*bad\.py failed with ZeroDivisionError: division by zero"),
        ("needy.py", "import no_such_library", r"plugins: importing .*needy\.py failed: No module named 'no_such_lib"),
        ("slip.py", "def f(:", r"plugins: importing .*slip\.py failed with SyntaxError"),
        ("leaves.py", "raise SystemExit(0)", r"plugins: importing .*leaves\.py failed with SystemExit: 0"),
        ("json.py", "", r"json\.py has the name of the module json, which is loaded: rename the file"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named_with_the_reason(name, code, message, tmp_path):
    if code is not None:
        (tmp_path / name).write_text(code)
    with pytest.raises(ImportError, match=message):
        load_plugins([str(tmp_path / name)])
    assert name == "json.py" or name.removesuffix(".py") not in sys.modules
