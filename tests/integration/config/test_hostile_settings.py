"""Every key of a run over hostile values: refused before anything is written, with the remedy, or a run that works."""

import pytest

from benchmarks.attack import settings as hostile
from tests.support.commands import run as run_command


def not_as_they_should_be(outcomes):
    """Return the lines that ended in a traceback, or that were refused after the run directory was made."""
    seen = list(outcomes)
    assert sum(outcome.result == "refused" for outcome in seen) > len(seen) / 3
    return [(outcome.line, outcome.said) for outcome in seen if outcome.result not in ("refused", "ran")]


@pytest.mark.parametrize(
    ("base", "values"),
    [(hostile.BASE, hostile.VALUES), (hostile.LANGUAGE_MODEL, hostile.VALUES[::2])],
    ids=["table", "language model"],
)
def test_no_value_of_any_key_ends_in_a_traceback(base, values):
    assert not_as_they_should_be(hostile.sweep(base, values)) == []


def test_no_line_ends_in_a_traceback():
    assert not_as_they_should_be(hostile.random_lines(hostile.BASE, 12)) == []


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("algo.gamma=1.5", "choose a number from 0 to 1"),
        ("algo.history_length=-1", "levels 0 to 2"),
        ("algo.episode_statistics=abc", "trajectories"),
        ("algo.length_weight_alpha=nan", "expected a finite number"),
        ("algo.length_weight_alpha=1000", "length_weight_alpha=1000: 2 to the power of it is more than 1e+100"),
        ("engine.nothing=1", "Unknown setting 'engine.nothing'"),
        ("env.max_episode_steps=-1", "choose 1 or more"),
        ("prompt.first=abc", "leaves out {observation}"),
        ("trainer.gradient_checkpointing=true", "set it to false"),
        ("rollout.num_tasks=20261121", "must be at most 65536"),
        ("rollout.group_size=60000", "makes 120,000 episodes side by side: choose at most 65,536"),
        ("evaluation.decoding_seeds=1000000000", "must be at most 1000"),
        ("model.capacity=1000000000000", "weights take 14,901 GiB to train, this machine has"),
        ("env.sections=20261121", "sections=20261121 with colours=3: that is more than 1,000,000 tasks; choose fewer"),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(setting, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    added = f"+{setting}" if "nothing" in setting else setting
    status, _, err = run_command(capsys, "train", *hostile.BASE, added)
    assert (status, list(tmp_path.iterdir())) == (2, [])
    assert reason in err
    assert setting.partition("=")[0].rpartition(".")[2] in err


@pytest.mark.parametrize("setting", ["model.hidden_size=1000000000", "tiny.layers=1000000000"])
def test_a_model_that_does_not_fit_the_machine_is_refused_before_it_is_made(setting, tmp_path, capsys):
    status, _, err = run_command(capsys, "train", *hostile.LANGUAGE_MODEL, setting, f"run_dir={tmp_path / 'run'}")
    assert (status, list(tmp_path.iterdir())) == (2, [])
    assert setting.partition(".")[2] in err
    assert "GiB. Choose a smaller one." in err
