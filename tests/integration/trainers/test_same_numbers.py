"""Seed 0 gives what it gave in the version before; see tests/support/same_numbers.py."""

import importlib.util
import json

import pytest

from tests.support import same_numbers

TABLE = json.loads(same_numbers.FILE.read_text())
PACKAGES = {"ALFWorld-v0": "alfworld", "sb3_ppo": "stable_baselines3", "sb3_dqn": "stable_baselines3"}
CHANGED = (
    "Equal seeds gave other numbers before. If that is meant, say in CHANGELOG.md what moved, and write the table "
    "anew: python -m tests.support.same_numbers"
)


def test_the_table_has_every_environment_and_learner():
    assert list(TABLE["environments"]) == list(same_numbers.ENVIRONMENTS)
    assert list(TABLE["runs"]) == list(same_numbers.RUNS)


def test_equal_seeds_play_equal_episodes_of_equal_tasks():
    for name, before in TABLE["environments"].items():
        if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name]):
            assert same_numbers.environment(name) == before, f"{name}. {CHANGED}"


@pytest.mark.parametrize("name", same_numbers.RUNS)
def test_equal_seeds_train_to_equal_numbers(name, tmp_path):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    now, before = same_numbers.run(name, tmp_path / "run"), dict(TABLE["runs"][name])
    for iteration, (row, expected) in enumerate(zip(now.pop("metrics"), before.pop("metrics"), strict=True), 1):
        assert row == pytest.approx(expected, rel=1e-3, abs=1e-5), f"{name}, iteration {iteration}. {CHANGED}"
    assert now == before, f"{name}, first iteration. {CHANGED}"
