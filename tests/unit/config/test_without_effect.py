"""Settings that nothing in a run reads are told, and no others."""

import pytest

from hgpo_gym.config.compose import load_run
from hgpo_gym.trainers.without_effect import RULES, keys_of, told, without_effect
from tests.support.commands import run as command

TABLE = ["model=tabular"]
READ = {
    "critic.epochs=2": ["algo=gae"],
    "rollout.rewards=[success]": ["algo=dvao"],
    "warmstart.epochs=1": ["warmstart.source=random", "model=tiny"],
    "warmstart.learning_rate=0.1": ["model=features", "warmstart.source=expert"],
    "warmstart.episodes=9": ["model=tiny", "warmstart.source=none"],
    "warmstart.random_actions=0.5": ["model=tiny", "warmstart.source=expert"],
    "tiny.layers=1": ["model=tiny"],
    "rollout.max_new_tokens=9": ["model=tiny"],
    "trainer.loss_constant=9": ["model=tiny", "trainer.loss_aggregation=sequence_sum"],
    "trainer.importance_cap=9": ["trainer.importance_correction=token"],
    "trainer.learning_rate=0.1": [],
    "objective=gspo": ["model=tiny"],
}
"""Each with what makes it read."""


@pytest.mark.parametrize(("setting", "others"), READ.items(), ids=READ)
def test_a_setting_is_told_where_nothing_reads_it_and_nowhere_else(setting, others):
    key = setting.partition("=")[0]
    assert without_effect([key], load_run([*TABLE, setting, *others])) == {}
    unread = ["algo=sb3_ppo"] if key in ("trainer.learning_rate", "objective") else TABLE
    assert list(without_effect([key], load_run([*unread, setting]))) == [key]


def test_every_rule_is_tried():
    tried = {override.partition("=")[0] for override in READ}
    for rule in RULES:
        assert any(key == known or key.startswith(f"{known}.") for key in tried for known in rule.keys), rule.keys


def test_what_stands_on_a_command_line_is_told_with_the_reason(capsys, tmp_path):
    named = ["critic.epochs=2", "trainer.iterations=0", f"run_dir={tmp_path / 'run'}"]
    _, out, _ = command(capsys, "train", *TABLE, *named)
    assert "critic.epochs has no effect: algo=hgpo has no critic." in out
    compare = ["compare", *TABLE, "critic.epochs=2", "warmstart.episodes=5", "seeds=1", "jobs=0", f"out={tmp_path}"]
    _, _, err = command(capsys, *compare, "algos=[gae,grpo]")
    assert "warmstart.episodes has no effect: warmstart.source=none imitates nothing." in err
    assert "critic" not in err
    assert told(without_effect(keys_of(["+critic.epochs=2"]), load_run(TABLE))) == [
        "critic.epochs has no effect: algo=hgpo has no critic."
    ]
