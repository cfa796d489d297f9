"""An agent that writes notes: it learns, resumes to the same numbers, and can be looked at."""

import pytest

from hgpo_gym.cli.main import main
from hgpo_gym.runs.directory import read_metrics, read_summary
from tests.support.small_runs import TINY, train, train_until, training_numbers

NOTES = ["memory=notes", "engine.constrain=none", "warmstart.source=expert", "memory.key=observation+notes"]
FAR = [
    "env.sections=1", "env.distance=3", "env.max_episode_steps=5", "rollout.num_tasks=2", "rollout.group_size=4",
    "model=tiny", "warmstart.source=expert", "warmstart.episodes=150", "warmstart.epochs=8", "warmstart.batch_size=16",
    "rollout.max_new_tokens=16", "engine.constrain=none", "evaluation.split=all", "evaluation.decoding_seeds=8",
    "env.split=all", "trainer.iterations=2",
]  # fmt: skip
"""A maze with one hall, four observations after its signpost, and no time for a wrong door."""


@pytest.mark.parametrize("form", ["memory.every=null", "memory.every=2"])
def test_a_run_with_notes_resumes_to_the_same_numbers(tmp_path, form):
    options = [*NOTES, form, "trainer.iterations=3", "checkpoint.every=1"]
    train(tmp_path / "whole", *options, base=TINY)
    train_until(1, tmp_path / "broken", *options, base=TINY)
    train(tmp_path / "broken", *options, "resume=must", base=TINY)
    assert training_numbers(tmp_path / "broken") == training_numbers(tmp_path / "whole")
    line = read_metrics(tmp_path / "whole")[-1]
    assert line["notes_length_max"] >= line["notes_length"] >= 0
    assert line["response_tokens_episode"] >= line["response_tokens"]


@pytest.mark.slow
def test_an_agent_with_notes_solves_a_maze_that_no_window_of_two_steps_does(tmp_path, capsys):
    for name, form in {"notes": NOTES, "window": ["memory.window=2"]}.items():
        train(tmp_path / name, *form, base=FAR)
    success = {name: read_summary(tmp_path / name)["evaluations"][-1]["success"] for name in ("notes", "window")}
    # Without the sign one of three doors is right.
    assert success["notes"] > 0.7 > 0.6 > success["window"]
    capsys.readouterr()
    main(["inspect", str(tmp_path / "notes"), "--task", "1", "--step", "1.3"])
    assert "- Notes: green" in capsys.readouterr().out
