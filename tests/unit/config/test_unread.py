"""A setting that nothing in a run reads is refused, and no other is."""

import copy

import pytest

from hgpo_gym.config.compose import ConfigError, load_config, load_run
from hgpo_gym.runs.renamed import with_new_settings
from hgpo_gym.section import check_read
from tests.support.commands import run as command

TABLE = ["model=tabular"]
PARSED = {
    "warmstart.epochs=1": ["warmstart.source=random", "model=tiny"],
    "warmstart.learning_rate=0.1": ["model=features", "warmstart.source=expert"],
    "warmstart.episodes=9": ["model=tiny", "warmstart.source=none"],
    "warmstart.random_actions=0.5": ["model=tiny", "warmstart.source=expert"],
    "tiny.layers=1": ["model=tiny"],
    "trainer.loss_constant=9": ["trainer.loss_aggregation=sequence_sum"],
    "trainer.learning_rate=0.1": [],
    "objective=gspo": ["model=tiny"],
    "rollout.temperature=0.5": [],
}
"""Each with what makes it read. The parsed settings tell."""
COMPOSED = {
    "algo.critic.epochs=2": ("algo=gae", "algo=hgpo has no critic.epochs. These have: gae, hiper_hae."),
    "algo.rewards=[success]": ("algo=dvao", "algo=hgpo has no rewards. These have: dvao, gdpo."),
    "correction.cap=9": ("correction=token", "correction=none has no cap. These have: token, sequence."),
    "objective.quantile=0.5": ("objective=hapo", "objective=ppo_clip has no quantile. These have: hapo."),
}
"""Each with the choice that has it, and the message where another one is chosen."""


@pytest.mark.parametrize(("setting", "others"), PARSED.items(), ids=PARSED)
def test_a_setting_is_refused_where_nothing_reads_it_and_nowhere_else(setting, others):
    key = setting.partition("=")[0]
    check_read([setting], load_run([*TABLE, setting, *others]).unread)
    unread = ["algo=sb3_ppo"] if key in ("trainer.learning_rate", "objective", "rollout.temperature") else TABLE
    with pytest.raises(ValueError, match=rf"^{key}"):
        check_read([setting], load_run([*unread, setting]).unread)


def test_an_option_of_another_choice_is_refused_with_those_that_have_it():
    for setting, (choice, message) in COMPOSED.items():
        assert load_config("config", [choice, setting])
        with pytest.raises(ConfigError) as refused:
            load_config("config", [setting])
        assert str(refused.value).endswith(message)


def test_a_comparison_refuses_what_none_of_its_runs_reads(capsys, tmp_path):
    compare = ["compare", *TABLE, "seeds=1", "jobs=0", f"out={tmp_path}"]
    _, _, err = command(capsys, *compare, "warmstart.episodes=5", "algos=[gae,grpo]")
    assert "warmstart.episodes is not read: warmstart.source=none imitates nothing. Leave it out." in err
    status, _, err = command(capsys, *compare, "trainer.learning_rate=0.1", "algos=[grpo,sb3_ppo]")
    assert status == 0, err


def test_a_base_has_its_critic_among_its_options():
    run = load_run([*TABLE, "algo=salt", "algo.base=gae", "algo.base_options={gamma: 0.9, critic: {epochs: 7}}"])
    assert run.algo.options["base_options"] == {"gamma": 0.9}
    assert run.credit.critic.epochs == 7
    with pytest.raises(ValueError, match=r"algo\.critic\.hidden_size=1000000000: must be at most 65536\."):
        load_run([*TABLE, "algo=gae", "algo.critic.hidden_size=1000000000"])


def test_a_former_name_is_translated():
    with pytest.warns(FutureWarning, match=r"critic\.epochs=2 is now algo\.critic\.epochs=2\."):
        assert load_config("config", ["algo=gae", "critic.epochs=2"])["algo"]["critic"]["epochs"] == 2
    with pytest.warns(FutureWarning):
        config = load_config("config", ["trainer.importance_correction=token", "trainer.importance_cap=3.0"])
    assert config["correction"] == {"name": "token", "cap": 3.0}
    with pytest.raises(ConfigError, match=r"Did you mean 'correction'\?"):
        load_config("config", ["trainer.importance_options={low: 1}"])


def test_an_older_run_has_its_settings_in_todays_places():
    older = {
        "trainer": {"clip_low": 0.2, "clip_high": 0.2, "loss_constant": 32, "importance_correction": "token_mask",
                    "importance_cap": 2.0, "importance_options": {"low": 0.5}},
        "rollout": {"rewards": ["success"], "replays": 1},
        "critic": {"learning_rate": 0.1, "epochs": 7},
        "model": {"kind": "tabular"},
        "memory": {"window": 2},
        "algo": {"name": "gae"},
    }  # fmt: skip
    assert with_new_settings(copy.deepcopy(older)) == {
        "trainer": {"loss_constant": None, "mini_batch_episodes": 8, "rows": "step"},
        "correction": {"name": "token_mask", "low": 0.5, "high": 3.0, "weigh": True},
        "rollout": {"max_retries": 1},
        "model": {"kind": "tabular"},
        "memory": {"name": "window", "window": 2},
        "algo": {"name": "gae", "critic": {"learning_rate": None, "epochs": 7}},
    }
    assert with_new_settings({**older, "algo": {"name": "dvao"}})["algo"] == {"name": "dvao", "rewards": ["success"]}
    weighed = {"algo": {"name": "nested_bellman", "own_share": 0.5}}
    assert with_new_settings(weighed)["algo"] == {"name": "nested_bellman", "td_weight": 0.5}
