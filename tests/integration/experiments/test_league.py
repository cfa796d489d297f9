"""Leagues: one comparison an environment, seeds in turn, additions that play what is missing, one report."""

import csv
import itertools
import re
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks import division, endings, equal_cost, history, league_curves, league_page, league_picture, league_runs
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.analysis.report import load
from hgpo_gym.analysis.report.intervals import probability_of_improvement, runs_to_tell, seeds_to_tell, typical
from hgpo_gym.analysis.report.standings import best_against_each, mean_ranks
from hgpo_gym.cli.main import main
from hgpo_gym.config.compose import load_config
from hgpo_gym.experiments.league import run_league
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.rollouts import conversations
from hgpo_gym.trainers.run_directory import read_metrics
from tests.support import ROOT

SMALL = [
    "model=tabular",
    "env.max_episode_steps=12",
    "trainer.iterations=2",
    "rollout.num_tasks=2",
    "evaluation.every=0",
    "evaluation.decoding_seeds=1",
]
MAZES = "environments=[{name: short, env.sections: 1}, {name: long, env.sections: 2}]"


def league(out, *overrides):
    """Play a league in this process; returns the runs in the order in which they were trained."""
    words = [*SMALL, MAZES, f"out={out}", *overrides]
    main(["league", *words, "jobs=1"])
    return sorted(out.glob("*/*-seed*/metrics.jsonl"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture(scope="module")
def copy_runs(tmp_path_factory):
    """Copies runs of both mazes, played once, by three algorithms with three seeds: for tests of what reads them."""
    source = tmp_path_factory.mktemp("played")
    league(source, "algos=[grpo,hgpo,gigpo]", "seeds=3")

    def copy(out, *runs):
        for run in runs:
            shutil.copytree(source / run, out / run)

    return copy


def tables(out, name):
    with (out / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_environment_has_each_seed_before_any_has_the_next_and_additions_play_what_is_missing(tmp_path):
    first = league(tmp_path, "algos=[grpo,hgpo]", "seeds=2")
    assert [path.parent.name.rsplit("-", 1)[1] for path in first] == ["seed0"] * 4 + ["seed1"] * 4
    assert {path.parent.parent.name for path in first[:4]} == {"short", "long"}
    overview = tables(tmp_path, "overview")
    assert {(row["comparison"], row["algorithm"], row["training seeds"]) for row in overview} == {
        *((f"{name}, split test", algorithm, "2") for name in ("short", "long") for algorithm in ("grpo", "hgpo")),
        ("all 2 together", "grpo", "4"),
        ("all 2 together", "hgpo", "4"),
    }
    again = league(tmp_path, "algos=[grpo,hgpo,gigpo]", "seeds=2")
    assert again[:8] == first
    assert {path.parent.name for path in again[8:]} == {"gigpo-seed0", "gigpo-seed1"}
    assert {row["algorithm"] for row in tables(tmp_path, "ranks")} == {"gigpo", "grpo", "hgpo"}
    assert "What the runs tell: short, split test" in (tmp_path / "report.md").read_text()


def test_runs_of_an_unfinished_league_are_compared_at_the_seeds_that_all_algorithms_have(copy_runs, tmp_path, capsys):
    out, rows = tmp_path / "league", tmp_path / "rows.csv"
    copy_runs(
        out, *(f"{name}/{run}" for name in ("short", "long") for run in ("grpo-seed0", "grpo-seed1", "hgpo-seed0"))
    )
    capsys.readouterr()
    league_runs.main([str(out), "--less", "grpo", "--table", "--to", str(rows)])
    told = capsys.readouterr().out
    assert "short, 1 seeds" in told
    with rows.open() as file:
        kept = list(csv.DictReader(file))
    assert {(row["environment"], row["algorithm"], row["seed"]) for row in kept} == {
        (name, algorithm, "0") for name in ("short", "long") for algorithm in ("grpo", "hgpo")
    }
    league_runs.main([str(out), "--all", "--less", "grpo", "--to", str(rows)])
    assert "short, 1 to 2 seeds" in capsys.readouterr().out
    with rows.open() as file:
        assert len(list(csv.DictReader(file))) == 6
    won = {row["environment"]: float(row["while_training"]) for row in kept if row["algorithm"] == "hgpo"}
    cells = next(line for line in told.splitlines() if line.startswith("| `hgpo`")).split(" | ")
    assert [float(cell.split(" ")[0]) for cell in (cells[1], cells[3])] == pytest.approx(
        [100 * won["long"], 100 * won["short"]], abs=0.06
    )
    copy_runs(out, "long/gigpo-seed0")
    league_runs.main([str(out), "--less", "gigpo"])
    assert "Left out, without a run of gigpo that has ended: short" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"Unknown algorithm 'gpo'.*Valid: gigpo, grpo, hgpo"):
        league_runs.main([str(out), "--less", "gpo"])


def test_a_league_with_fewer_iterations_than_its_runs_have_is_refused_and_left_as_it_was(tmp_path, capsys):
    league(tmp_path, "algos=[hgpo]", "seeds=1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit):
        league(tmp_path, "algos=[grpo,hgpo]", "seeds=1", "trainer.iterations=1")
    assert f"The run in {tmp_path}/short/hgpo-seed0 has 2 iterations already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_how_episodes_end_is_told_of_the_evaluations_that_runs_have_kept(tmp_path, capsys):
    (run,) = league(tmp_path, "algos=[hgpo]", "seeds=1", "only=[long]", "evaluation.every=1")
    capsys.readouterr()
    endings.main([str(tmp_path)])
    told = [line.split(" | ")[2:] for line in capsys.readouterr().out.splitlines()[2:] if line]
    assert [cells[0] for cells in told] == ["0", "1", "2"]
    for iteration, cells in enumerate(told):
        episodes = conversations.read(run.parent / "evaluations" / f"iteration_{iteration:04d}.jsonl.gz")
        steps = [len(episode.exchanges) for episode in episodes]
        won = [episode.won for episode in episodes]
        ended = [one or taken < 12 for one, taken in zip(won, steps, strict=True)]
        expected = [np.mean(ended), np.mean(np.array(won)[ended]) if any(ended) else np.nan, np.mean(won)]
        assert int(cells[1]) == len(episodes) > 0
        assert [float(cell or "nan") for cell in cells[2:5]] == pytest.approx(
            [100 * share for share in expected], abs=0.051, nan_ok=True
        )
        assert float(cells[5].strip(" |")) == pytest.approx(np.mean(steps), abs=0.051)
    for path in (run.parent / "evaluations").iterdir():
        path.unlink()
    with pytest.raises(SystemExit):
        endings.main([str(tmp_path)])
    assert "No run has kept episodes of an evaluation" in capsys.readouterr().err


def test_lines_of_runs_name_every_option_that_has_not_its_default(tmp_path):
    out, rows = tmp_path / "league", tmp_path / "rows.csv"
    league(out, "algos=[{name:gagpo,gamma:1,trace_decay:0.5},hgpo]", "seeds=1", "only=[short]")
    league_runs.main([str(out), "--less", "hgpo", "--to", str(rows)])
    with rows.open() as file:
        assert [row["algorithm"] for row in csv.DictReader(file)] == ["hgpo", "gagpo gamma=1 lambda=0.5"]


def test_lines_of_runs_name_what_was_chosen_beside_the_estimator(copy_runs, tmp_path):
    """Or such runs would stand for the algorithm's own where they are added to others."""
    usual, dynamic, rows = (tmp_path / name for name in ("usual", "dynamic", "rows.csv"))
    copy_runs(usual, "short/grpo-seed0", "short/hgpo-seed0")
    league(
        dynamic,
        "algos=[{name: grpo, sampler: {name: dynamic, rounds: 3}}, hgpo, {name: grpo, objective: gspo}, "
        "{name: grpo, objective: {name: ppo_clip, clip_high: 0.28}}, {recipe: dr_grpo}]",
        *("seeds=1", "only=[short]"),
    )
    for folder in (usual, dynamic):
        league_runs.main([str(folder), "--less", "hgpo", "--add", "--to", str(rows)])
    with rows.open() as file:
        assert [row["algorithm"] for row in csv.DictReader(file)] == [
            "grpo",
            "hgpo",
            "grpo objective=gspo",
            "grpo ppo_clip:clip_high=0.28",
            "grpo sampler=dynamic dynamic:rounds=3",
            "dr_grpo loss_aggregation=sequence_sum",
        ]


def test_lines_of_runs_whose_settings_a_line_does_not_tell_are_refused(copy_runs, tmp_path, capsys):
    short, long, rows = (tmp_path / name for name in ("short", "long", "rows.csv"))
    copy_runs(short, "short/grpo-seed0", "short/hgpo-seed0")
    league(long, "algos=[grpo]", "seeds=1", "only=[short]", "trainer.iterations=3")
    to = ["--less", "grpo", "--to", str(rows)]
    with pytest.raises(
        ValueError,
        match=r"Two lines of one run: short, grpo, seed 0, 2 iterations \(.*/short/short/grpo-seed0: .*iterations=2\); "
        r"short, grpo, seed 0, 3 iterations \(.*/long/short/grpo-seed0: .*iterations=3\)\. Leave one out, .*--suffix",
    ):
        league_runs.main([str(short), str(long), *to])
    assert not rows.exists()
    league_runs.main([str(short), *to])
    before = rows.read_text()
    with pytest.raises(
        ValueError,
        match=r"Two numbers of iterations in one environment: short, hgpo, seed 0, 2 iterations \(.*rows\.csv\); "
        r"short, grpo, seed 0, 3 iterations \(.*grpo-seed0",
    ):
        league_runs.main([str(long), "--add", *to])
    assert rows.read_text() == before
    league_runs.main([str(long), "--add", "--suffix", "_long", *to])
    assert rows.read_text().startswith(before)
    league(long, "algos=[grpo,hgpo]", "seeds=1", "only=[short]", "trainer.iterations=3")
    league_runs.main([str(short), *to])
    league_runs.main([str(long), "--add", *to])  # every line of the file
    with rows.open() as file:
        assert [row["iterations"] for row in csv.DictReader(file)] == ["3", "3"]


def test_algorithms_without_a_seed_in_common_are_refused(copy_runs, tmp_path, capsys):
    out, rows = tmp_path / "league", tmp_path / "rows.csv"
    copy_runs(out, "short/grpo-seed0", "short/grpo-seed1", "short/hgpo-seed2")
    rows.write_text("as it was")
    with pytest.raises(ValueError, match=r"short, split test: no seed in common among grpo 0, 1; hgpo 2\. .*--all"):
        league_runs.main([str(out), "--less", "grpo", "--to", str(rows)])
    assert rows.read_text() == "as it was"
    capsys.readouterr()
    league_runs.main([str(out), "--all", "--less", "grpo", "--table"])
    told = capsys.readouterr().out
    assert next(line for line in told.splitlines() if "`hgpo`" in line).endswith("% | no seed in common |")
    assert next(line for line in told.splitlines() if "`grpo`" in line).endswith("% |  |")


def test_lines_of_runs_are_added_to_those_that_a_file_has(copy_runs, tmp_path, capsys):
    first, second, rows = (tmp_path / name for name in ("first", "second", "rows.csv"))
    copy_runs(first, *(f"{name}/{run}" for name in ("short", "long") for run in ("grpo-seed1", "hgpo-seed1")))
    copy_runs(second, "long/hgpo-seed0", "long/gigpo-seed0")
    add = ["--all", "--less", "hgpo", "--add", "--to", str(rows)]
    league_runs.main([str(first), *add])
    before = rows.read_text().splitlines()
    rows.write_text("\n".join([before[0], *(line.replace(",1,", ",12,", 1) for line in before[1:])]) + "\n")
    for folder in (second, first, first):
        league_runs.main([str(folder), *add])
    after = rows.read_text().splitlines()
    assert [",".join(line.split(",")[:3]) for line in after[1:]] == [
        *("long,grpo,1", "long,grpo,12", "long,hgpo,0", "long,hgpo,1", "long,hgpo,12", "long,gigpo,0"),
        *("short,grpo,1", "short,grpo,12", "short,hgpo,1", "short,hgpo,12"),
    ]
    assert set(before) <= set(after)
    capsys.readouterr()
    for table in ([], ["--table"]):
        league_runs.main([str(first), str(second), "--all", "--less", "grpo", *table])
        told = capsys.readouterr().out
        assert "nan" not in told
        assert table or told.count("; no seed in common with grpo") == 2  # of gigpo, in the end and while training
    league_runs.main([str(second), *add, "--suffix", "_kept"])
    assert [line for line in rows.read_text().splitlines() if line not in after] == [
        line.replace("long,", "long_kept,", 1) for line in after if line.startswith(("long,hgpo,0", "long,gigpo,0"))
    ]
    rows.write_text("algorithm,seed,1\n")
    with pytest.raises(ValueError, match=r"has the columns algorithm, seed, 1, not environment, .*: name another file"):
        league_runs.main([str(first), *add])


def test_success_at_equal_cost_is_the_mean_until_all_have_played_as_much(tmp_path, capsys):
    algorithms = "algos=[grpo,{name: grpo, sampler: {name: dynamic, rounds: 3}}]"
    league(tmp_path, algorithms, "only=[long]", "seeds=2", "trainer.iterations=3", "evaluation.every=1")
    written = tmp_path / "rows.csv"
    equal_cost.main([str(tmp_path), "--cost", "iterations", "episodes", "--to", str(written)])
    told = capsys.readouterr().out
    assert "up to 3 iterations" in told
    (comparison,) = load.comparisons(load.load_runs([tmp_path])[0])
    with written.open() as file:
        rows = {(row["algorithm"], int(row["seed"]), row["cost"]): row for row in csv.DictReader(file)}
    least = min(int(run.curve("episodes").sum()) for run in comparison.all_runs)
    assert {int(row["until"]) for row in rows.values()} == {3, least}
    for label, runs in comparison.runs.items():
        for run in runs:
            success = [evaluation["success"] for evaluation in run.evaluations]
            by_iteration = rows[label, run.seed, "iterations"]
            assert float(by_iteration["success"]) == pytest.approx(np.trapezoid(success) / 3, abs=1e-4)
            by_episode = rows[label, run.seed, "episodes"]
            assert int(by_episode["played"]) == run.curve("episodes").sum()
            at = np.concatenate([[0], np.cumsum(run.curve("episodes"))])
            finely = np.interp(np.linspace(0, least, 100_001), at, success)
            assert float(by_episode["success"]) == pytest.approx(finely.mean(), abs=1e-3)
    with pytest.raises(ValueError, match="Unknown algorithm 'gigpo'"):
        equal_cost.main([str(tmp_path), "--less", "gigpo"])


def test_curves_of_runs_are_kept_and_joined_with_those_of_later_ones(copy_runs, tmp_path, capsys):
    first, second, curves, picture = (tmp_path / name for name in ("first", "second", "curves.csv", "curves.png"))
    copy_runs(first, "short/grpo-seed0", "short/hgpo-seed0")
    league(second, "algos=[{name:grpo,episode_gamma:0.9},grpo]", "seeds=[1]", "only=[short]")
    capsys.readouterr()
    league_curves.main([str(first), "--to", str(curves)])
    league_curves.main([str(curves), str(second), str(first), "--to", str(curves), "--picture", str(picture)])
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "grpo: seeds 0, 1",
        "hgpo: seeds 0",
        "grpo episode_gamma=0.9: seeds 1",
    ]
    header, *lines = (line.split(",") for line in curves.read_text().splitlines())
    assert header == ["algorithm", "seed", "1", "2"]
    assert [line[:2] for line in lines] == [
        ["grpo", "0"],
        ["grpo", "1"],
        ["hgpo", "0"],
        ["grpo episode_gamma=0.9", "1"],
    ]
    metrics = read_metrics(first / "short" / "hgpo-seed0")
    assert [float(success) for success in lines[2][2:]] == pytest.approx([one["success"] for one in metrics], abs=5e-5)
    assert picture.read_bytes().startswith(b"\x89PNG")
    curves.write_text(curves.read_text().replace(lines[0][2], "0.7777", 1))
    with pytest.raises(ValueError, match=r"grpo, seed 0, is there twice, with different numbers"):
        league_curves.main([str(curves), str(first)])
    curves.write_text("algorithm,seed,1\ngrpo,7,0.5\n")
    with pytest.raises(ValueError, match=r"Runs of one number of iterations are needed; found \[1, 2\]"):
        league_curves.main([str(curves), str(first)])
    copy_runs(first, "long/grpo-seed0")
    with pytest.raises(
        ValueError, match=r"several environments or settings \(.*long.*short.*\): name the folder of one"
    ):
        league_curves.main([str(first)])


def lines_of_runs(path):
    """Two algorithms in two environments, two seeds each, and one that is in one environment alone."""
    of_both = {
        "shop": {"grpo": (0.2, 0.4), "hgpo": (0.3, 0.5)},
        "maze": {"grpo": (0.6, 0.6), "hgpo": (0.9, 0.9)},
    }
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                league_runs.COLUMNS,
                *(
                    (environment, name, seed, 4, 100, 2.0, 0.0, 1.0, success)
                    for environment, own in of_both.items()
                    for name, successes in own.items()
                    for seed, success in enumerate(successes)
                ),
                ("maze", "only_here", 0, 4, 100, 2.0, 0.0, 1.0, 0.99),
            ]
        )
    return path


def test_a_page_takes_a_run_once_and_one_number_of_iterations_an_environment(tmp_path):
    one, other = lines_of_runs(tmp_path / "one.csv"), lines_of_runs(tmp_path / "other.csv")
    with pytest.raises(
        ValueError,
        match=r"Two lines of one run: shop, grpo, seed 0, 4 iterations \(.*one\.csv\); "
        r"shop, grpo, seed 0, 4 iterations \(.*other\.csv\)\. Leave one out",
    ):
        league_page.League([one, other])
    other.write_text(f"{','.join(league_runs.COLUMNS)}\nmaze,new,0,8,100,2.0,0.0,1.0,0.5\n")
    with pytest.raises(
        ValueError,
        match=r"Two numbers of iterations in one environment: maze, grpo, seed 0, 4 iterations \(.*one\.csv\); "
        r"maze, new, seed 0, 8 iterations \(.*other\.csv\)",
    ):
        league_page.League([one, other])
    assert league_page.League([one, other], ["shop"]).algorithms == ["grpo", "hgpo"]
    other.write_text("algorithm,seed,1\ngrpo,7,0.5\n")
    with pytest.raises(ValueError, match=r"other\.csv has the columns algorithm, seed, 1, not environment"):
        league_page.League([other])


def lines_with_a_latecomer(path, algorithms):
    """In a maze, the later the better; the second has other seeds than the others."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(league_runs.COLUMNS)
        for number, seed in itertools.product(range(algorithms), range(8)):
            own = seed + 8 * (number == 1)
            lines.writerow(("maze", f"algo{number}", own, 4, 100, 2.0, 0.0, 1.0, 0.5 + 0.01 * number))
    return league_page.League([path])


def test_who_has_no_seed_in_common_stands_last(tmp_path):
    told = lines_with_a_latecomer(tmp_path / "rows.csv", 5).block("while training, less algo0")
    assert [line.split("`")[1] for line in told.splitlines()[2:]] == ["algo4", "algo3", "algo2", "algo1"]
    assert told.endswith("| `algo1` | no seed in common |\n")
    (training,) = league_picture.draw(lines_with_a_latecomer(tmp_path / "more.csv", 9), "algo0").axes
    assert [cell.get_text() for cell in training.texts] == [*(f"+{number}.0" for number in range(8, 1, -1)), "-"]


def test_a_picture_of_many_algorithms_is_a_map_by_mean_rank(tmp_path):
    path = tmp_path / "rows.csv"

    def drawn(success):
        with path.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(league_runs.COLUMNS)
            for number, seed in itertools.product(range(9), range(8)):
                lines.writerow(("maze", f"algo{number}", seed, 4, 100, 2.0, 0.0, 1.0, success(number, seed)))
        return league_picture.draw(league_page.League([path]), "algo0")

    def rising(number, seed):
        return 0.5 + 0.01 * number + (0.2 * (-1) ** seed if number == 1 else 0)

    (training,) = drawn(rising).axes  # in the end all have 100 %
    assert [label.get_text() for label in training.get_yticklabels()] == [f"algo{number}" for number in range(8, 0, -1)]
    cells = {cell.get_text(): cell.get_weight() for cell in training.texts}
    assert cells == {f"+{number}.0": "normal" if number == 1 else "bold" for number in range(8, 0, -1)}
    with pytest.raises(ValueError, match="No algorithm differs from another"):
        drawn(lambda number, seed: 1.0)


def test_a_picture_has_every_algorithm_less_one_of_them(tmp_path):
    rows = lines_of_runs(tmp_path / "rows.csv")
    figure = league_picture.draw(league_page.League([rows]), "grpo")
    training, end = figure.axes
    assert [label.get_text() for label in training.get_yticklabels()] == ["shop", "maze"]
    (drawn,), (ended,) = training.containers, end.containers
    np.testing.assert_allclose(drawn.lines[0].get_xdata(), [10, 30])
    np.testing.assert_allclose(ended.lines[0].get_xdata(), [0, 0])
    assert [label.get_text() for label in figure.legends[0].get_texts()] == ["hgpo"]
    league_picture.main([str(tmp_path / "picture.png"), str(rows), "--only", "maze", "--less", "only_here"])
    assert (tmp_path / "picture.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="Unknown algorithm 'only_here'"):
        league_picture.main([str(tmp_path / "picture.png"), str(rows), "--less", "only_here"])


def test_a_page_says_what_the_runs_of_a_league_tell(tmp_path, capsys):
    rows, page = lines_of_runs(tmp_path / "rows.csv"), tmp_path / "page.md"
    page.write_text(
        "# Found\n\n<!-- league: while training -->\n<!-- end -->\n\n<!-- league: maze -->\nold\n<!-- end -->\n"
        "<!-- league: while training, less grpo -->\n<!-- end -->\n"
        "<!-- league: best against grpo -->\n<!-- end -->\nEnd.\n"
    )
    league_page.main([str(page), str(rows)])
    told = page.read_text()
    of_shop, of_maze = (league_page.League([rows]).block(name) for name in ("shop", "maze"))
    assert "| algorithm | mean rank | shop, 2 seeds, % | maze, 2 seeds, % |" in told
    assert "| `hgpo` | 1.0 (1.0 to 2.0) | 40.0 (30.0 to 50.0) | 90.0 (90.0 to 90.0) |\n| `grpo` | 2.0 " in told
    assert "- While training, 2 seeds do not tell hgpo and grpo apart" in told
    assert (
        "| algorithm | shop | maze |\n| --- | --- | --- |\n| `hgpo` | 10.0 (10.0 to 10.0) | 30.0 (30.0 to 30.0) |\n"
        in told
    )
    assert told.endswith(f"*shop*:\n\n{of_shop}\n*maze*:\n\n{of_maze}\n<!-- end -->\nEnd.\n")
    assert "- In the end" not in told  # all at 100 %
    assert "only_here" not in told
    assert "old" not in told
    assert told.startswith("# Found\n")
    league_page.main([str(page), str(rows)])
    assert page.read_text() == told
    (tmp_path / "other.md").write_text(told)
    page.write_text("<!-- league: shop less maze -->\n<!-- end -->\n<!-- league: in the end -->\n<!-- end -->\n")
    league_page.main([str(page), str(rows), "--only", "shop", "maze"])
    assert (
        "| algorithm | seeds | while training | in the end |\n| --- | --- | --- | --- |\n"
        "| `grpo` | 2 | -30.0 (-157.1 to 97.1) | 0.0 (0.0 to 0.0) |\n" in page.read_text()
    )
    assert "No algorithm differs from another." in page.read_text()
    page.write_text(
        "<!-- league: while training, less grpo, only maze -->\n<!-- end -->\n"
        "<!-- league: maze less shop -->\n<!-- end -->\n"
    )
    league_page.main([str(page), str(rows)])
    assert "| algorithm | maze |\n| --- | --- |\n| `only_here` | 39.0 |\n" in page.read_text()
    assert "| `hgpo` | 2 | 50.0 (-77.1 to 177.1) |" in page.read_text()
    assert page.read_text().count("only_here") == 1
    page.write_text("<!-- league: hgpo less grpo; only_here less hgpo -->\n<!-- end -->\n")
    league_page.main([str(tmp_path / "other.md"), str(page), str(rows)])
    assert (
        "| environment | seeds | hgpo less grpo, training | in the end | only_here less hgpo, training | in the end |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| shop | 2 / 0 | 10.0 (10.0 to 10.0) |  |  |  |\n"
        "| maze | 2 / 1 | 30.0 (30.0 to 30.0) |  | 9.0 |  |\n" in page.read_text()
    )
    capsys.readouterr()
    league_page.main([str(rows), "--only", "maze", "--tell", "hgpo less grpo", "while training, less grpo"])
    told = capsys.readouterr().out
    assert "| maze | 2 | 30.0 (30.0 to 30.0) |  |\n" in told
    assert "| algorithm | maze |\n| --- | --- |\n| `only_here` |" in told
    for files in ([page], [rows]):
        with pytest.raises(SystemExit):
            league_page.main(list(map(str, files)))
        assert "Name a CSV file of runs, and a page to rewrite or, by --tell, a block" in capsys.readouterr().err
    page.write_text("<!-- league: while training -->\n<!-- end -->\n")
    league_page.main([str(page), str(rows), "--only", "maze"])
    assert "| `only_here` | 1.0 | 99.0 |" in page.read_text()
    with pytest.raises(ValueError, match=r"Unknown environment 'mase'. Did you mean 'maze'\?"):
        league_page.main([str(page), str(rows), "--only", "mase"])
    found = league_page.differences_in(
        "It is 30.0 points\n(30.0 to 30.0) ahead, and -10.0* (-10.0 to -10.0); 4 (1 to 5); level (0.1,\n-0.2 to 0.3)."
    )
    assert found == [(30.0, 30.0, 30.0), (-10.0, -10.0, -10.0), (0.1, -0.2, 0.3)]
    league = league_page.League([rows])
    assert all(league.told_of(*difference) for difference in found[:2])
    assert not league.told_of(*found[2])
    across = (-60.0, -187.1, 67.1)  # GRPO in the shop less HGPO in the maze
    assert league.told_of(*across)
    assert not league_page.League([rows], ["maze"]).told_of(*across)
    assert not league.told_of(30.0, 30.0, 30.1)
    page.write_text("<!-- league: mase -->\n<!-- end -->\n")
    with pytest.raises(
        ValueError,
        match=r"mase -->: write while .* of grpo; hgpo; or cost; .* shop; maze; .* only_here; or .best against",
    ):
        league_page.main([str(page), str(rows)])


ALL_RUNS = [
    *("league_headline.csv", "league_alfworld_keys.csv", "league_alfworld_tiny.csv", "league_mazes.csv"),
    *("league_warm.csv", "league_more.csv", "league_discount.csv", "league_statistics.csv"),
    *("league_methods.csv", "league_parts.csv", "league_milestones.csv", "league_products_warm.csv"),
    *("signpost_maze_language_model_20_seeds.csv", "language_model_discount.csv"),
]
ALL_ENVIRONMENTS = [
    *("alfworld", "alfworld_admissible", "alfworld_warm", "alfworld_tiny", "webshop", "webshop_products"),
    *("webshop_warm", "webshop_products_warm", "secret_word", "secret_word_1500", "signpost_maze"),
    *("sokoban", "sokoban_levels", "halls", "chance", "plates"),
]
ESTIMATOR_PAGES = sorted(
    f"estimators/{page.name}"
    for page in (ROOT / "docs" / "estimators").glob("*.md")
    if "<!-- league: " in page.read_text()
)


PAGES = [
    ("league.md", ["league_headline.csv", "league_mazes.csv"], []),
    (
        "league_keys.md",
        ["league_headline.csv", "league_alfworld_keys.csv"],
        ["alfworld", "alfworld_admissible"],
    ),
    ("league_warm.md", ["league_warm.csv", "league_products_warm.csv"], []),
    (
        "league_all.md",
        [
            "league_headline.csv",
            "league_alfworld_keys.csv",
            "league_mazes.csv",
            "league_warm.csv",
            "league_more.csv",
        ],
        [
            *("alfworld", "alfworld_admissible", "alfworld_warm", "webshop", "webshop_products", "webshop_warm"),
            *("secret_word", "sokoban_levels", "halls", "chance", "plates"),
        ],
    ),
    (
        "league_methods.md",
        [
            *("league_headline.csv", "league_mazes.csv", "league_warm.csv", "league_more.csv"),
            *("league_methods.csv", "league_parts.csv", "league_statistics.csv"),
        ],
        [
            *("alfworld", "alfworld_warm", "webshop", "webshop_products", "webshop_warm", "secret_word"),
            *("halls", "chance", "plates"),
        ],
    ),
    ("league_tiny.md", ["league_alfworld_tiny.csv"], []),
    ("league_gamma.md", ["league_gamma.csv"], []),
    (
        "league_time.md",
        [
            *("league_headline.csv", "league_warm.csv", "league_more.csv", "league_statistics.csv"),
            "league_time.csv",
        ],
        ["alfworld", "alfworld_warm", "webshop", "webshop_products", "webshop_warm"],
    ),
    (
        "league_silent.md",
        [
            *("league_headline.csv", "league_mazes.csv", "league_warm.csv", "league_more.csv", "league_methods.csv"),
            *("league_parts.csv", "league_statistics.csv", "league_silent.csv"),
        ],
        [
            *("alfworld", "alfworld_warm", "webshop", "webshop_products", "webshop_warm", "secret_word"),
            *("halls", "chance", "plates", "halls_keep", "chance_keep", "plates_keep"),
            *("halls_mini_batch_64", "halls_keep_no_bonus", "halls_no_bonus"),
            *("webshop_keep", "alfworld_keep", "webshop_mini_batch_64", "webshop_keep_no_bonus"),
            *("webshop_products_no_bonus", "halls_mask", "chance_mask", "plates_mask", "webshop_mask"),
            *("webshop_products_mask", "alfworld_mask", "alfworld_mini_batch_256"),
        ],
    ),
    (
        "league_statistics.md",
        ["league_headline.csv", "league_mazes.csv", "league_more.csv", "league_statistics.csv"],
        ["alfworld", "alfworld_warm", "webshop", "secret_word", "halls", "chance", "plates"],
    ),
    *((page, ALL_RUNS, ALL_ENVIRONMENTS) for page in ("claims.md", *ESTIMATOR_PAGES)),
    (
        "league_parts.md",
        [
            *(
                "league_headline.csv",
                "league_mazes.csv",
                "league_warm.csv",
                "league_more.csv",
                "league_options.csv",
            ),
            *("league_statistics.csv", "league_parts.csv"),
        ],
        ["alfworld", "alfworld_warm", "webshop", "webshop_warm", "halls", "chance", "plates"],
    ),
    (
        "league_discount.md",
        [
            "league_headline.csv",
            "league_mazes.csv",
            "league_warm.csv",
            "league_more.csv",
            "league_discount.csv",
        ],
        ["alfworld", "alfworld_warm", "webshop", "webshop_warm", "halls", "chance", "plates"],
    ),
]
"""Each with its CSV files and the environments of these; none: all."""
ALL = ((*ALL_RUNS, "league_time.csv"), (*ALL_ENVIRONMENTS, "alfworld_warm_32"))
TWO_KEYS = (
    ("league_headline.csv", "league_alfworld_keys.csv", "league_parts.csv"),
    ("alfworld", "alfworld_admissible"),
)


@cache
def league_of(results, only):
    return league_page.League([ROOT / "benchmarks" / "results" / name for name in results], only)


@pytest.mark.parametrize(("page", "results", "only"), PAGES)
def test_the_pages_on_the_league_are_those_of_its_runs(page, results, only):
    """`python -m benchmarks.league_page docs/<page>`, these files and `--only` these bring it up to date."""
    text = (ROOT / "docs" / page).read_text()
    assert league_page.rewritten(text, league_of(tuple(results), tuple(only))) == text


@pytest.fixture(scope="module")
def discounts(tmp_path_factory):
    """The mazes with other discounts: their file has GiGPO's and HGPO's runs of league_mazes.csv again."""
    path, results = tmp_path_factory.mktemp("discounts") / "runs.csv", ROOT / "benchmarks" / "results"
    own = league_runs.lines_of(results / "league_gamma.csv")
    league_runs.write_lines(path, league_runs.added(results / "league_mazes.csv", own))
    return league_page.League([path])


def paragraphs(text):
    """Each, or each item of a list, under the name of its section."""
    for section in re.split(r"^(?=#)", text, flags=re.MULTILINE):
        heading, _, body = section.partition("\n")
        yield from (f"{heading}\n{part}" for part in re.split(r"\n\s*\n|\n(?=- )", body))


def names_both(paragraph, pair):
    """Whether it has the estimators of two algorithms, by name, as `ours`, or REINFORCE++ for that with a baseline."""
    words = {word.replace("++", "_pp") for word in re.findall(r"[a-z0-9_+]+", paragraph.lower())}
    also = {"hgpo_gae": "ours", "nested_bellman": "ours", "reinforce_pp_baseline": "reinforce_pp"}
    return all({name, also.get(name)} & words for name in (algorithm.split(" ")[0] for algorithm in pair))


@pytest.mark.parametrize(("page", "results", "only"), PAGES)
def test_a_difference_in_a_sentence_is_one_that_runs_tell_of_two_who_stand_beside_it(page, results, only, discounts):
    """By the runs of the page, of another page, of two kinds of keys, of other discounts; or it stands in a table of
    the page, in one of two settings, or in benchmarks/README.md, whose runs differ."""
    text = (ROOT / "docs" / page).read_text()
    of_settings = (ROOT / "docs" / "league_silent.md").read_text()
    tables = "".join(block[0] for block in league_page.BLOCK.finditer(text + of_settings))
    elsewhere = {
        (sign * value, *sorted((sign * low, sign * high)))
        for value, low, high in league_page.differences_in((ROOT / "benchmarks" / "README.md").read_text() + tables)
        for sign in (1, -1)
    }
    leagues = [league_of(tuple(results), tuple(only)), league_of(*ALL), league_of(*TWO_KEYS), discounts]
    for paragraph in paragraphs(league_page.BLOCK.sub("", text)):
        near = f"{Path(page).stem} {paragraph}"
        for difference in set(league_page.differences_in(paragraph)) - elsewhere:
            pairs = set().union(*(league.told_of(*difference) for league in leagues))
            assert any(names_both(near, pair) for pair in pairs), f"{difference}: of {pairs or 'none'}: {paragraph}"


def test_every_estimator_that_the_league_played_says_on_its_page_what_was_measured():
    played = set()
    for name in ("league_headline.csv", "league_methods.csv"):
        with (ROOT / "benchmarks" / "results" / name).open(newline="") as file:
            played |= {run["algorithm"].split(" ")[0] for run in csv.DictReader(file)}
    own = {Path(page).stem for page in ESTIMATOR_PAGES}
    assert played - own == {"grpo", "gigpo", "hgpo"}  # which the page of claims has, one against another


MEASURED = [
    ("league_mazes.csv", ["halls", "chance", "plates"]),
    ("signpost_maze_language_model_20_seeds.csv", ["signpost_maze"]),
    ("league_more.csv", ["secret_word"]),
    ("league_headline.csv", ["alfworld"]),
    ("league_headline.csv", ["webshop"]),
]
"""Where the columns of the table of methods come from."""


def test_the_table_of_methods_is_that_of_the_runs():
    """Success while training; of several environments without intervals."""
    results = ROOT / "benchmarks" / "results"
    leagues = [league_page.League([results / name], environments) for name, environments in MEASURED]
    with (results / "methods.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    for name, _, *cells in rows:
        for cell, league in zip(cells, leagues, strict=True):
            found = league.numbers("while_training").values() if name in league.algorithms else []
            told = [league_runs.in_percent(typical(own[name])) for own in found]
            assert cell == (" / ".join(one.split()[0] for one in told) if len(told) > 1 else "".join(told))


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


def test_commands_for_a_scheduler_name_every_run(tmp_path, capsys):
    words = [*SMALL, MAZES, f"out={tmp_path}", "seeds=2", "algos=[grpo]", "jobs=0"]
    main(["league", *words])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("hgpo-gym train env.sections=") for line in lines)
    assert [line.count("env_name=long") for line in lines] == [0, 1, 0, 1]


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


def test_an_environment_for_all_is_refused_where_they_have_their_own(tmp_path):
    words = ["env=frozen_lake", f"out={tmp_path}", "algos=grpo", "seeds=1"]
    with pytest.raises(ValueError, match="env=frozen_lake: the league's environment 'halls' has its own, env=signpost"):
        run_league(load_config("league", words), words, None, Progress())


def test_ranks_are_those_of_the_means_and_equal_ones_share_theirs():
    estimate = mean_ranks(np.array([[[0.9, 0.9], [0.1, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5], [0.2, 0.2]]]))
    np.testing.assert_allclose(estimate.value, [(1 + 1.5) / 2, (3 + 1.5) / 2, (2 + 3) / 2])
    np.testing.assert_allclose([estimate.low, estimate.high], [[1] * 3, [3] * 3])  # two runs leave all open
    with pytest.raises(ValueError, match=r"comparisons of \[3, 2\] algorithms"):
        mean_ranks([[np.ones(3)] * 3, [np.ones(3)] * 2])


def test_ranks_stay_open_between_those_that_are_surely_better_and_worse():
    far = [place + 0.01 * np.arange(8.0) for place in (0.5, 0.9, 0.1)]
    estimate = mean_ranks([far])
    np.testing.assert_array_equal([estimate.value, estimate.low, estimate.high], [[2, 1, 3]] * 3)
    alike = [far[0], far[0] + 0.001, far[2]]
    estimate = mean_ranks([alike, far])
    np.testing.assert_allclose(estimate.value, [2.0, 1.0, 3.0])
    np.testing.assert_allclose(estimate.low, [1.5, 1.0, 3.0])
    np.testing.assert_allclose(estimate.high, [2.0, 1.5, 3.0])
    assert mean_ranks([[one[:1] for one in far]]).low is None


def test_open_ranks_hold_the_true_ones_of_close_algorithms():
    """Neighbours a third of a deviation apart: resampled ranks would hold the best one's in less than half of cases."""
    random, held = np.random.default_rng(0), np.zeros(6)
    truth = np.arange(6)[::-1] / 3
    for _ in range(20):
        estimate = mean_ranks([list(random.normal(truth[:, None], size=(6, 10))) for _ in range(3)])
        held += (estimate.low <= np.arange(1, 7)) & (np.arange(1, 7) <= estimate.high)
    assert held.min() >= 19


def by_seed(**scores):
    return {name: dict(enumerate(own.tolist())) for name, own in scores.items()}


def test_who_mostly_does_worse_beats_nobody_by_a_higher_interquartile_mean():
    """Where runs end at one of two levels, the middle half may say otherwise than the pairs of runs."""
    one, other = np.r_[np.full(36, 0.5), np.full(14, 1.0)], np.linspace(0.515, 0.525, 50)
    (told,) = best_against_each(by_seed(one=one, other=other))
    assert told.startswith("other beats one with probability 0.72 (")
    assert told.endswith("at 50 seeds, though one has the higher interquartile mean.")
    ranks = mean_ranks([[one, other]])
    assert ranks.value.tolist() == [1, 2]
    assert (ranks.low.tolist(), ranks.high.tolist()) == ([1, 1], [2, 2])


def test_what_is_told_of_many_is_corrected_for_how_many_they_are():
    six, nothing = np.full(6, 0.1), np.array([0.1, -0.1, 0.2, -0.2, 0.3, -0.3])
    assert league_runs.significant([six]) == [True]  # p = 2 / 64
    assert league_runs.significant([six, nothing]) == [False, False]
    assert league_runs.significant([six, six[:5], nothing[:0]]) == [True, False, False]  # five cannot have p < 0.05
    ten = np.full(10, 0.1)  # p = 2 / 1024
    assert league_runs.in_points([ten, nothing, *[ten[:0]] * 3]) == [
        "10.0 (10.0 to 10.0)*",
        "0.0 (-24.8 to 24.8)",
        *[""] * 3,
    ]
    assert league_runs.significant([ten, *[nothing] * 30]) == [False] * 31

    best, worse, alike = np.arange(5.0) + 3.0, np.arange(5.0), np.arange(5.0) + 2.9
    assert best_against_each(by_seed(best=best, worse=worse))[0].startswith("best beats worse")
    told = best_against_each(by_seed(best=best, worse=worse, alike=alike))
    assert told[0].startswith("5 seeds do not tell best and worse apart")  # the best was looked for among three pairs


def test_the_best_of_algorithms_that_do_not_differ_seldom_beats_another():
    """Which one is the best is looked for in the runs that are then tested."""
    random = np.random.default_rng(0)
    found = sum(
        any(
            word in told
            for told in best_against_each(by_seed(**{name: random.normal(size=10) for name in "abcdefgh"}))
            for word in (" beats ", " ahead by ")
        )
        for _ in range(60)
    )
    assert found <= 6


def test_the_runs_that_it_takes_are_those_of_noethers_formula():
    assert runs_to_tell(0.6) == runs_to_tell(0.4) == 131
    assert runs_to_tell(0.75) == 21
    assert runs_to_tell(0.5) is None
    assert runs_to_tell(0.75, pairs=10) == 36  # (2.807 + 0.842)^2 / (6 * 0.25^2)


def test_seeds_that_differences_take_are_those_of_the_paired_test():
    differences = np.array([0.0, 0.2])  # a mean of 0.1, a deviation of 0.1414
    assert seeds_to_tell(differences) == seeds_to_tell(-differences) == 16  # 2 * (1.960 + 0.842)^2
    assert seeds_to_tell(differences, pairs=10) == 27  # 2 * (2.807 + 0.842)^2
    assert seeds_to_tell(np.array([0.1, -0.1])) is None


def test_what_seeds_share_cancels_where_runs_do_not_tell():
    """Seeds far apart, and one of two a little better at each."""
    seeds, random = np.arange(8.0), np.random.default_rng(0)
    little = 0.01 + 0.001 * random.normal(size=8)

    def told_of(noise):
        (told,) = best_against_each(by_seed(one=seeds + little + noise, other=seeds))
        return told

    assert re.fullmatch(
        r"8 seeds do not tell one and other apart \(probability 0\.5\d \(.*\)\), run against run; at the same seed one "
        r"is ahead by 1\.\d \(\d\.\d to 1\.\d\) points\.",
        told_of(0),
    )
    assert told_of(np.tile([1.0, -1.0], 4)).endswith("it would take more than 10,000.")
    noise = np.tile([0.1, -0.1], 4)
    assert told_of(noise).endswith(f"it would take about {seeds_to_tell(little + noise):,}.")
    # Other seeds have nothing in common: ranks alone tell how many it takes.
    (told,) = best_against_each({"one": dict(enumerate(seeds + 1)), "other": dict(enumerate(seeds, start=8))})
    needed = runs_to_tell(float(probability_of_improvement(seeds + 1, seeds)))
    assert told.endswith(f"it would take about {needed:,}.")


def test_dividing_makes_as_much_of_haste_as_of_winning():
    batch = StepBatch.from_records(
        group=["both", "both", "both", "one", "one"],
        trajectory=["soon", "late", "late", "won", "lost"],
        step=[0, 0, 1, 0, 0],
        reward=[10.0, 0.0, 10.0, 10.0, 0.0],
        observation=["hall", "hall", "cellar", "hall", "hall"],
        history_length=0,
    )
    # Both won: 10 and 9.5 are 0.25 from their mean. One won: 10 and 0 are 5 from theirs. Divided, all are 1.
    assert division.share_among_won(batch, "mean_norm", 0.95) == pytest.approx(0.25 / 5.25)
    assert division.share_among_won(batch, "mean_std_norm", 0.95) == pytest.approx(0.5, abs=1e-5)


def _three_visits_of_a_hall(milestone: list[bool]) -> StepBatch:
    """Two episodes by the cellar and one by the yard, which comes to the hall with a milestone or without."""
    return StepBatch.from_records(
        group=["task"] * 6,
        trajectory=["won", "won", "lost", "lost", "other", "other"],
        step=[0, 1, 0, 1, 0, 1],
        reward=[0.0, 10.0, 0.0, 0.0, 0.0, 4.0],
        observation=["cellar", "hall", "cellar", "hall", "yard", "hall"],
        history_length=1,
        milestone=milestone,
    )


def test_a_level_is_judged_by_what_other_episodes_of_its_sets_came_to():
    batch = _three_visits_of_a_hall([False, False, False, False, True, False])
    observation, history_of_one = (
        dict(zip(history.COUNTS, row, strict=True)) for row in history.counts(batch, gamma=1.0)
    )
    # Two steps in the cellar, three in the hall; by way of the cellar two in the hall.
    assert (observation["compared"], observation["in_twos"], observation["pairs"]) == (5, 2, 2 + 6)
    assert (history_of_one["compared"], history_of_one["in_twos"], history_of_one["pairs"]) == (2, 2, 2)
    # In the hall one of three has reached a milestone, which the way there tells apart.
    assert (observation["pairs_apart"], history_of_one["pairs_apart"]) == (4, 0)
    # Others came to 10 and 0; with the third among them to (0 + 4) / 2 and (10 + 4) / 2.
    assert history_of_one["known"] == 2
    assert history_of_one["squares"] == 10**2 + 10**2
    assert history_of_one["squares_of_level_0"] == (10 - 2) ** 2 + (0 - 7) ** 2
    averaged = (2 + 2 * 0) / 3, (7 + 2 * 10) / 3
    assert history_of_one["squares_averaged"] == pytest.approx((10 - averaged[0]) ** 2 + averaged[1] ** 2)


def test_what_a_level_compares_is_told_with_an_interval_over_task_groups():
    batches = [_three_visits_of_a_hall([False, False, False, False, reached, False]) for reached in (True, False)]
    told = history.lines([history.counts(batch, gamma=1.0) for batch in batches]).splitlines()
    assert told[2] == "| 0 | 83 % | 40 % | 25 % | 83 % |  |  |"
    assert told[3] == "| 1 | 33 % | 100 % | 0 % | 33 % | 1.77 (1.77 to 1.77) | 1.49 (1.49 to 1.49) |"
