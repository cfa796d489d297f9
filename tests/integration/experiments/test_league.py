"""Leagues: one comparison an environment, seeds in turn, additions that play what is missing, one report."""

import csv

import pytest

from hgpo_gym.cli.main import main
from hgpo_gym.config.compose import load_config
from hgpo_gym.experiments.league import run_league
from hgpo_gym.progress import Progress

SMALL = [
    "model=tabular", "env.max_episode_steps=12", "trainer.iterations=2", "rollout.num_tasks=2",
    "evaluation.every=0", "evaluation.decoding_seeds=1",
]  # fmt: skip
MAZES = "environments=[{name: short, env.sections: 1}, {name: long, env.sections: 2}]"


def league(out, *overrides):
    """Play a league in this process; returns the runs in the order in which they were trained."""
    words = [*SMALL, MAZES, f"out={out}", *overrides]
    main(["league", *words, "jobs=1"])
    return sorted(out.glob("*/*-seed*/metrics.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def tables(out, name):
    with (out / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_environment_has_each_seed_before_any_has_the_next_and_additions_play_what_is_missing(tmp_path):
    first = league(tmp_path, "algos=[grpo,hgpo]", "seeds=2", "trainer.iterations=1")
    assert [path.parent.name.rsplit("-", 1)[1] for path in first] == ["seed0"] * 4 + ["seed1"] * 4
    assert {path.parent.parent.name for path in first[:4]} == {"short", "long"}
    overview = tables(tmp_path, "overview")
    assert {(row["comparison"], row["algorithm"], row["training seeds"]) for row in overview} == {
        *((f"{name}, split test", algorithm, "2") for name in ("short", "long") for algorithm in ("grpo", "hgpo")),
        ("all 2 together", "grpo", "4"),
        ("all 2 together", "hgpo", "4"),
    }
    again = league(tmp_path, "algos=[grpo,hgpo,gigpo]", "seeds=2", "trainer.iterations=1")
    assert again[:8] == first
    assert {path.parent.name for path in again[8:]} == {"gigpo-seed0", "gigpo-seed1"}
    assert {row["algorithm"] for row in tables(tmp_path, "ranks")} == {"gigpo", "grpo", "hgpo"}
    assert "Conclusions: short, split test" in (tmp_path / "report.md").read_text()


def test_some_of_the_environments_can_be_played_alone(tmp_path, capsys):
    words = [f"out={tmp_path}", "league=headline", "only=[halls,plates]", "algos=[grpo]", "seeds=[3,5]", "jobs=0"]
    main(["league", *words])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("env_name=")[1].split(" ")[0] for line in lines] == ["halls", "plates"] * 2
    main(["league", *words, "only=halls"])
    assert capsys.readouterr().out.splitlines() == lines[::2]
    with pytest.raises(SystemExit):
        main(["league", *words, "only=[hall]"])
    assert "Unknown environment of the league 'hall'. Did you mean 'halls'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("environments=[]", r"environments=\[\]: name at least one"),
        ("environments=[{env: sokoban}]", r"\{'env': 'sokoban'\} has no name"),
        (
            "environments=[{name: a, env.slpi: 1}]",
            "environment 'a', which sets env.slpi=1: Unknown config key 'env.slpi'",
        ),
        ("environments=[{name: a},{name: a, env.sections: 1}]", "two are called 'a'"),
        ("environments=[{name: a, seed: 1}]", "seed=... is set for every run"),
        ("environments=[{name: a, seeds: 1, jobs: 2}]", "'a' sets seeds, jobs, which the league sets for all"),
        ("environments=[{name: a, env_name: b}]", "'a' sets env_name, which"),
        ("environments=[{name: ../a}]", r"'\.\./a' is the name of a folder, too"),
        ("environments=[{name: a},{name: b, env.sections: 3}]", "a/.*-seed0 and b/.*-seed0 would be the same run"),
        ("only=[]", r"only=\[\]: name at least one environment of the league, or null"),
    ],
)
def test_environments_that_cannot_be_are_refused(tmp_path, override, message):
    words = [*SMALL, override, f"out={tmp_path}"]
    with pytest.raises(ValueError, match=message):
        run_league(load_config("league", words), words, None, Progress())


def test_one_environment_for_all_is_refused_where_each_names_one(tmp_path):
    words = ["env=frozen_lake", f"out={tmp_path}", "algos=grpo", "seeds=1"]
    with pytest.raises(ValueError, match="env=frozen_lake: the league's environment 'halls' has its own, env=signpost"):
        run_league(load_config("league", words), words, None, Progress())
